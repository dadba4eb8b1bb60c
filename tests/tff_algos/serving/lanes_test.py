"""Requests that wait: their number, their deadlines, their lanes."""

import contextlib
import threading
import time
from concurrent import futures

import orjson
import pytest

from tff_algos.core import errors
from tff_algos.serving import lanes as lanes_lib
from tff_algos.serving import models, rest, served_model, server_config


def submit_small(lanes, work, *arguments, **options):
  return lanes.submit(
    work, *arguments, is_large=False, store=lanes.store, **options
  )


@pytest.fixture(name='lanes')
def make_lanes(tmp_path):
  config = server_config.ServerConfig(max_waiting=3, answer_seconds=20)
  store = models.ModelStore(tmp_path)
  with contextlib.closing(lanes_lib.Lanes(store, config)) as lanes:
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

  working = [submit_small(lanes, work) for _ in range(2)]
  started.wait(20)
  yield is_free
  is_free.set()
  assert [future.result() for future in working] == [b'done'] * 2


def echo(store, config, text):
  return text


def test_full_queue_refuses(lanes, occupy):
  waiting = [submit_small(lanes, echo, b'a') for _ in range(3)]
  with pytest.raises(errors.RequestError, match='too many requests') as error:
    submit_small(lanes, echo, b'a')
  assert error.value.status == 503
  assert waiting[0].cancel()  # Its client has gone: its place is free.
  more = submit_small(lanes, echo, b'b')
  occupy.set()
  assert more.result(20) == b'b'


def test_deadline(lanes, occupy):
  late = submit_small(lanes, echo, b'a', seconds=0.01)
  in_time = submit_small(lanes, echo, b'b', seconds=19)
  time.sleep(0.05)
  occupy.set()
  assert in_time.result(20) == b'b'
  with pytest.raises(errors.RequestError, match='its deadline') as error:
    late.result(20)
  assert error.value.status == 503


def test_large_requests_do_not_hold_small_ones(lanes, monkeypatch):
  is_free = threading.Event()

  def call(store, function, *arguments):
    assert is_free.wait(20)
    return function(None, *arguments)

  monkeypatch.setattr(lanes._bulk, 'call', call)
  large = [
    lanes.submit(echo, b'a', is_large=True, store=lanes.store) for _ in range(2)
  ]
  # One is answered, and half as many may wait as small ones.
  with pytest.raises(errors.RequestError, match='too many requests'):
    lanes.submit(echo, b'a', is_large=True, store=lanes.store)
  assert submit_small(lanes, echo, b'b').result(20) == b'b'
  is_free.set()
  assert [future.result(20) for future in large] == [b'a'] * 2


def test_reports_that_keep_coming_do_not_hold_a_prediction(
  small_store, monkeypatch
):
  monkeypatch.setattr(lanes_lib, '_NUM_THREADS', 1)
  is_answered = threading.Event()
  config = server_config.ServerConfig()
  with contextlib.closing(lanes_lib.Lanes(small_store, config)) as lanes:

    def report(store, config):
      if not is_answered.is_set():
        submit_small(lanes, report)
      return b''

    def first(store, config):
      body = orjson.dumps({'instances': [[1, 2, 3, 4]]})
      predicted.append(
        submit_small(lanes, rest.answer, 'predict', {'name': 'anna'}, body)
      )
      return report(store, config)

    predicted = []
    submit_small(lanes, first).result(20)
    try:
      assert b'predictions' in predicted[0].result(20)
    finally:
      is_answered.set()


def test_what_waits_is_answered_together(small_store, monkeypatch):
  """As soon as a thread is free; what does not wait is answered alone."""
  monkeypatch.setattr(lanes_lib, '_NUM_THREADS', 1)
  asked, is_free = [], threading.Event()
  original = served_model.ServedModel.run

  def run(self, name, inputs):
    asked.append(len(inputs['x']))
    return original(self, name, inputs)

  monkeypatch.setattr(served_model.ServedModel, 'run', run)
  config = server_config.ServerConfig()
  with contextlib.closing(lanes_lib.Lanes(small_store, config)) as lanes:

    def submit(row, x=1.0):
      body = b'{"instances": [[%g, 0, 0, %g]]}' % (x, row)
      return submit_small(lanes, rest.answer, 'predict', {'name': 'anna'}, body)

    alone = [submit(row).result(20) for row in range(5)]
    assert asked == [1] * 5
    submit_small(lanes, lambda *_: is_free.wait(20) and b'')
    waiting = [submit(row) for row in range(5)]
    gone = submit(6)
    assert gone.cancel()
    refused = submit(0, float('nan'))
    is_free.set()
    answers = [future.result(20) for future in waiting]
    with pytest.raises(errors.RequestError, match='not JSON'):
      refused.result(20)
  assert asked[5:] == [5]
  for one, joined in zip(alone, answers, strict=True):
    (one,), (joined,) = (orjson.loads(a)['predictions'] for a in (one, joined))
    assert one['logits'] == pytest.approx(joined['logits'], abs=1e-5)
  sizes = lanes.monitor.batch_requests
  assert sizes._sum.get() == 10


def test_what_waits_at_the_end_is_cancelled(tmp_path, monkeypatch):
  monkeypatch.setattr(lanes_lib, '_NUM_THREADS', 1)
  is_free, started = threading.Event(), threading.Event()

  def work(store, config):
    started.set()
    assert is_free.wait(20)
    return b'done'

  def shutdown(pool, original=futures.ThreadPoolExecutor.shutdown, **options):
    """Shuts down while the first is at work, and only then lets it go on."""
    original(pool, wait=False, **options)
    is_free.set()
    original(pool)

  monkeypatch.setattr(futures.ThreadPoolExecutor, 'shutdown', shutdown)
  lanes = lanes_lib.Lanes(
    models.ModelStore(tmp_path), server_config.ServerConfig()
  )
  first = submit_small(lanes, work)
  assert started.wait(20)
  second = submit_small(lanes, echo, b'a')
  lanes.close()
  assert first.result(0) == b'done'
  assert second.cancelled()


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
