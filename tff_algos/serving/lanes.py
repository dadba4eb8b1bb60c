"""Lanes of requests: small ones never wait for large ones.

Small requests are answered by threads, in the order of their arrival, and those
that wait in batches (`batching.py`); large ones, one at a time, by a process of
their own with low priority (`bulk.py`). A queue that is full refuses.
"""

import collections
import functools
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any, NamedTuple

import prometheus_client

from tff_algos.core import errors
from tff_algos.serving import (
  access,
  batching,
  bulk,
  models,
  monitoring,
  server_config,
)

# What is at most this long is answered within milliseconds, blank images within
# seconds (`preprocessing.PIXELS_RULE`): JSON, with at most this many arrays
# and objects, and messages of gRPC.
_SMALL_JSON_BYTES = 16 * 2**10
_SMALL_JSON_PARTS = 256
SMALL_BYTES = 64 * 2**10
# More would only wait for the interpreter, in no order.
_NUM_THREADS = 2

_Started = bytes | batching.Question


class Lanes:
  """Two bounded queues of requests over one model store.

  Attributes:
    store: The models of the small lane; the large one has its own copies.
    config: Limits.
    monitor: Metrics.
    tokens: Who may ask.
  """

  def __init__(
    self, store: models.ModelStore, config: server_config.ServerConfig
  ):
    self.store = store
    self.config = config
    self._bulk = bulk.BulkProcess(store.folder, config.answer_seconds)
    self.tokens = access.Tokens(config.token_file)
    self.monitor = monitoring.Monitor(store, config.access_log)
    gauge = self.monitor.lane_requests.labels
    sizes = self.monitor.batch_requests
    self._small = _Lane(_NUM_THREADS, config, gauge('small'), sizes)
    # Large requests of gRPC leave half of its places to small ones.
    half = config._replace(max_waiting=max(1, config.max_waiting // 2))
    self._large = _Lane(1, half, gauge('large'))

  def submit(
    self,
    function: Callable[..., _Started],
    *arguments: Any,
    is_large: bool,
    store: models.ModelStore,
    seconds: float | None = None,
  ) -> futures.Future[bytes]:
    """Queues `function(store, config, *arguments)`.

    Args:
      function: Of a module, as another process may call it.
      *arguments: Its further arguments.
      is_large: Whether it may take long, see `is_large_json`.
      store: The models as the caller sees them; its `version` tells which
        answered.
      seconds: Time that the client waits, if it says so.

    Returns:
      The answer, or the RequestError that refuses the request.

    Raises:
      RequestError: (503) If too many requests wait.
    """
    limit = self.config.answer_seconds
    if seconds is not None:
      limit = min(limit, seconds)
    deadline = time.monotonic() + limit
    call = (deadline, store, function, *arguments)
    if is_large:
      return self._large.submit(self._run_large, *call)
    return self._small.submit(self._run_small, *call)

  def close(self) -> None:
    """Ends the threads and the process; what waits is cancelled."""
    self._bulk.close()
    self._small.close()
    self._large.close()

  def _run_small(self, deadline, store, function, *arguments) -> _Started:
    _check_in_time(deadline)
    return function(store, self.config, *arguments)

  def _run_large(self, deadline, store, function, *arguments) -> bytes:
    _check_in_time(deadline)
    return self._bulk.call(store, function, self.config, *arguments)


class _Lane:
  """Threads with a bounded queue."""

  def __init__(
    self,
    num_threads: int,
    config: server_config.ServerConfig,
    gauge: prometheus_client.Gauge,
    batch_requests: prometheus_client.Histogram | None = None,
  ):
    """Starts no thread yet.

    Args:
      num_threads: Number of threads.
      config: Limits.
      gauge: Number of requests in the lane.
      batch_requests: Records the sizes of batches; None for a lane that answers
        requests one by one.
    """
    self._config = config
    self._gauge = gauge
    self._batch_requests = batch_requests
    self._waiting: collections.deque[_Call] = collections.deque()
    self._threads = futures.ThreadPoolExecutor(num_threads, 'lane')
    self._places = threading.Semaphore(num_threads + config.max_waiting)

  def submit(
    self, function: Callable[..., _Started], *arguments: Any
  ) -> futures.Future[bytes]:
    if not self._places.acquire(blocking=False):
      raise errors.RequestError(
        'too many requests wait; send again later', status=503
      )
    self._gauge.inc()
    call = _Call(futures.Future(), functools.partial(function, *arguments))
    call.future.add_done_callback(self._leave)
    self._waiting.append(call)
    # There are as many calls of `_serve`; those after a batch find nothing.
    self._threads.submit(self._serve)
    return call.future

  def _serve(self) -> None:
    """Answers the next request, in a lane of batches all that wait now.

    Inputs of more than the largest request are not held at once.
    """
    asked, size = [], 0
    # Those that come meanwhile are not for this call, which would not end.
    for _ in range(len(self._waiting)):
      if size > self._config.max_request_bytes:
        break
      try:
        call = self._waiting.popleft()
      except IndexError:
        break
      if not call.future.set_running_or_notify_cancel():
        continue
      started = batching.attempt(call.start)
      if isinstance(started, batching.Question):
        asked.append((call.future, started))
        size += started.num_bytes
      else:
        _settle(call.future, started)
      if self._batch_requests is None:
        break
    for positions in batching.batches([q for _, q in asked], self._config):
      batch = [asked[i] for i in positions]
      if self._batch_requests is not None:
        self._batch_requests.observe(len(batch))
      answers = batching.answer_batch([question for _, question in batch])
      for (future, _), answer in zip(batch, answers, strict=True):
        _settle(future, answer)

  def _leave(self, future: futures.Future[bytes]) -> None:
    del future
    self._gauge.dec()
    self._places.release()

  def close(self) -> None:
    self._threads.shutdown(cancel_futures=True)
    for call in self._waiting:
      call.future.cancel()


class _Call(NamedTuple):
  """A request in the queue of a lane.

  Attributes:
    future: Its answer.
    start: Parses it.
  """

  future: futures.Future[bytes]
  start: Callable[[], _Started]


def is_large_json(body: bytes) -> bool:
  """Returns whether a body belongs to the lane of large requests.

  A short body may have thousands of rows: to parse, convert and answer them
  holds the interpreter for as long as those of a long body.
  """
  if len(body) > _SMALL_JSON_BYTES:
    return True
  return body.count(b'[') + body.count(b'{') > _SMALL_JSON_PARTS


def _settle(future: futures.Future[bytes], answer: bytes | Exception) -> None:
  if isinstance(answer, Exception):
    future.set_exception(answer)
  else:
    future.set_result(answer)


def _check_in_time(deadline: float) -> None:
  if time.monotonic() > deadline:
    raise errors.RequestError(
      'the request waited for longer than its deadline; send again later',
      status=503,
    )
