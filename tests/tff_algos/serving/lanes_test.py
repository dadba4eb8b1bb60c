"""Requests that wait: their number, their deadlines, their lanes."""

import threading
import time

import pytest

from tff_algos.core import errors
from tff_algos.serving import access, models, server_config
from tff_algos.serving import lanes as lanes_lib

ANYBODY = access.Caller()


@pytest.fixture(name='lanes')
def make_lanes(tmp_path):
  config = server_config.ServerConfig(max_waiting=3, answer_seconds=20)
  with lanes_lib.opened(models.ModelStore(tmp_path), config) as lanes:
    yield lanes


@pytest.fixture(name='occupy')
def make_occupy(lanes):
  """Keeps both threads of the small lane at work until the event is set."""
  is_free = threading.Event()
  started = threading.Barrier(3)

  def work(store, config):
    started.wait(20)
    is_free.wait(20)
    return b'done'

  futures = [
    lanes.submit(work, is_large=False, caller=ANYBODY) for _ in range(2)
  ]
  started.wait(20)
  yield is_free
  is_free.set()
  assert [future.result() for future in futures] == [b'done'] * 2


def echo(store, config, text):
  return text


def test_answer(lanes):
  assert (
    lanes.submit(echo, b'a', is_large=False, caller=ANYBODY).result(20) == b'a'
  )


def test_full_queue_refuses(lanes, occupy):
  waiting = [
    lanes.submit(echo, b'a', is_large=False, caller=ANYBODY) for _ in range(3)
  ]
  with pytest.raises(errors.RequestError, match='too many requests') as error:
    lanes.submit(echo, b'a', is_large=False, caller=ANYBODY)
  assert error.value.status == 503
  assert waiting[0].cancel()  # Its client has gone: its place is free.
  more = lanes.submit(echo, b'b', is_large=False, caller=ANYBODY)
  occupy.set()
  assert more.result(20) == b'b'


def test_deadline(lanes, occupy):
  late = lanes.submit(echo, b'a', is_large=False, caller=ANYBODY, seconds=0.01)
  in_time = lanes.submit(echo, b'b', is_large=False, caller=ANYBODY, seconds=19)
  time.sleep(0.05)
  occupy.set()
  assert in_time.result(20) == b'b'
  with pytest.raises(errors.RequestError, match='its deadline') as error:
    late.result(20)
  assert error.value.status == 503


def test_large_requests_do_not_hold_small_ones(lanes, monkeypatch):
  is_free = threading.Event()

  def call(client_id, function, *arguments):
    assert is_free.wait(20)
    return function(None, *arguments)

  monkeypatch.setattr(lanes._bulk, 'call', call)
  large = [
    lanes.submit(echo, b'a', is_large=True, caller=ANYBODY) for _ in range(4)
  ]
  assert (
    lanes.submit(echo, b'b', is_large=False, caller=ANYBODY).result(20) == b'b'
  )
  is_free.set()
  assert [future.result(20) for future in large] == [b'a'] * 4


@pytest.mark.parametrize(
  ('body', 'is_large'),
  [
    (b'{"instances": [[1, 2]]}', False),
    (b' ' * 2**14, False),
    (b' ' * 2**14 + b' ', True),
    (b'[' * 256, False),
    (b'[{' * 128 + b'{', True),
  ],
)
def test_size(body, is_large):
  assert lanes_lib.is_large_json(body) == is_large
