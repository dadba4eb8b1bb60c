"""Closed-loop load: counts, limits and failures, of clients without a server."""

import contextlib
import threading
import time

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.serving import load


class Clients:
  """Clients that count what they are asked; `answer` is called for each."""

  def __init__(self, answer=lambda number: b''):
    self.num_open = self.number = 0
    self._answer = answer
    self._lock = threading.Lock()

  @contextlib.contextmanager
  def __call__(self):
    self.num_open += 1
    try:
      yield self._ask
    finally:
      self.num_open -= 1

  def _ask(self, content):
    assert content == b'what'
    with self._lock:
      self.number += 1
      number = self.number
    return self._answer(number)


def test_number_of_requests_is_limited():
  clients = Clients()
  seen = load.run(clients, b'what', 3, seconds=60, max_requests=50)
  assert clients.number == 3 + 50  # The first of each is not measured.
  assert seen.starts.shape == seen.milliseconds.shape == (50,)
  assert not seen.failures
  assert clients.num_open == 0


def test_time_is_limited_and_measured():
  clients = Clients(lambda _: time.sleep(0.02) or b'')
  seen = load.run(clients, b'what', 2, seconds=0.5, max_requests=10**9)
  assert 0.5 <= seen.seconds < 30
  assert 2 <= len(seen.starts) <= 52
  assert seen.milliseconds.min() >= 20
  assert 0 <= seen.starts.min() <= seen.starts.max() <= 0.5
  assert clients.num_open == 0


def test_clients_ask_at_the_same_time():
  barrier = threading.Barrier(4)
  clients = Clients(lambda _: barrier.wait(30) and b'' or b'')
  seen = load.run(clients, b'what', 4, seconds=60, max_requests=8)
  assert len(seen.starts) == 8


def test_failures_are_counted_by_reason():
  def answer(number):
    if number % 2 == 0:
      raise errors.RequestError('busy', status=503)
    if number % 5 == 0:
      raise ConnectionResetError
    return b''

  seen = load.run(Clients(answer), b'what', 1, seconds=60, max_requests=20)
  assert seen.failures == {'503': 10, 'ConnectionResetError': 2}
  assert len(seen.starts) == 8


def test_without_a_first_answer_there_is_no_load():
  def answer(number):
    if number > 2:
      raise errors.RequestError('a valid token is needed', status=401)
    return b''

  clients = Clients(answer)
  with pytest.raises(errors.UserError, match='no answer: 401: a valid token'):
    load.run(clients, b'what', 3, seconds=60, max_requests=10)
  assert clients.num_open == 0


def test_percentiles():
  seen = load.Load(np.zeros(1001), np.arange(1001.0), {}, 1.0)
  assert seen.percentiles() == pytest.approx(
    {
      'p50': 500,
      'p90': 900,
      'p99': 990,
      'p99.9': 999,
      'max': 1000,
    }
  )
