"""Lanes of requests: small ones never wait for large ones.

Small requests are answered by threads, in the order of their arrival; large
ones, one at a time, by a process of their own with low priority (`bulk.py`).
A queue that is full refuses.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from concurrent import futures
from typing import Any

import prometheus_client

from tff_algos.core import errors
from tff_algos.serving import access, bulk, models, monitoring, server_config

# What is at most this long is answered within milliseconds: JSON, with at most
# this many arrays and objects, and messages of gRPC.
_SMALL_JSON_BYTES = 16 * 2**10
_SMALL_JSON_PARTS = 256
SMALL_BYTES = 64 * 2**10
# More would only wait for the interpreter, in no order.
_NUM_THREADS = 2


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
    self._small = _Lane(_NUM_THREADS, config.max_waiting, gauge('small'))
    self._large = _Lane(1, config.max_waiting, gauge('large'))

  def submit(
    self,
    function: Callable[..., bytes],
    *arguments: Any,
    is_large: bool,
    caller: access.Caller,
    seconds: float | None = None,
  ) -> futures.Future[bytes]:
    """Queues `function(store, config, *arguments)`.

    Args:
      function: Of a module, as another process may call it.
      *arguments: Its further arguments.
      is_large: Whether it may take long, see `is_large_json`.
      caller: Who asks; the store is restricted to its client.
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
    call = (deadline, caller.client_id, function, *arguments)
    if is_large:
      return self._large.submit(self._run_large, *call)
    return self._small.submit(self._run_small, *call)

  def close(self) -> None:
    """Ends the threads and the process; what waits is cancelled."""
    self._bulk.close()
    self._small.close()
    self._large.close()

  def _run_small(self, deadline, client_id, function, *arguments) -> bytes:
    _check_in_time(deadline)
    store = self.store.restricted(client_id)
    return function(store, self.config, *arguments)

  def _run_large(self, deadline, client_id, function, *arguments) -> bytes:
    _check_in_time(deadline)
    return self._bulk.call(client_id, function, self.config, *arguments)


class _Lane:
  """Threads with a bounded queue."""

  def __init__(
    self, num_threads: int, max_waiting: int, gauge: prometheus_client.Gauge
  ):
    self._gauge = gauge
    self._threads = futures.ThreadPoolExecutor(num_threads, 'lane')
    self._places = threading.Semaphore(num_threads + max_waiting)

  def submit(self, *call: Any) -> futures.Future[bytes]:
    if not self._places.acquire(blocking=False):
      raise errors.RequestError(
        'too many requests wait; send again later', status=503
      )
    self._gauge.inc()
    future = self._threads.submit(*call)
    future.add_done_callback(self._leave)
    return future

  def _leave(self, future: futures.Future[bytes]) -> None:
    del future
    self._gauge.dec()
    self._places.release()

  def close(self) -> None:
    self._threads.shutdown(cancel_futures=True)


@contextlib.contextmanager
def opened(
  store: models.ModelStore, config: server_config.ServerConfig
) -> Generator[Lanes]:
  """Yields lanes, and closes them at the end."""
  lanes = Lanes(store, config)
  try:
    yield lanes
  finally:
    lanes.close()


def is_large_json(body: bytes) -> bool:
  """Returns whether a body belongs to the lane of large requests.

  A short body may have thousands of rows: to parse, convert and answer them
  holds the interpreter for as long as those of a long body.
  """
  if len(body) > _SMALL_JSON_BYTES:
    return True
  return body.count(b'[') + body.count(b'{') > _SMALL_JSON_PARTS


def _check_in_time(deadline: float) -> None:
  if time.monotonic() > deadline:
    raise errors.RequestError(
      'the request waited for longer than its deadline; send again later',
      status=503,
    )
