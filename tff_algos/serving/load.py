"""Load on a server by clients that ask, wait for the answer and ask again."""

import collections
import contextlib
import http.client
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import grpc
import numpy as np

from tff_algos.core import errors
from tff_algos.serving import clients

_PERCENTILES = (50, 90, 99, 99.9)
_AFTER_FAILURE_SECONDS = 0.05
_END_SECONDS = 1.0


class Load(NamedTuple):
  """What clients noticed.

  Attributes:
    starts: `[num_answers]`, seconds from the beginning to each request.
    milliseconds: `[num_answers]`, from the request to its answer.
    failures: Status or kind of error -> number of requests.
    seconds: Duration.
  """

  starts: np.ndarray
  milliseconds: np.ndarray
  failures: Mapping[str, int]
  seconds: float

  def percentiles(self) -> dict[str, float]:
    """Returns name -> milliseconds: p50, p90, p99, p99.9 and max."""
    values = np.percentile(self.milliseconds, [*_PERCENTILES, 100])
    names = [*(f'p{q:g}' for q in _PERCENTILES), 'max']
    return dict(zip(names, values.tolist(), strict=True))


def run(
  client: Callable[[], contextlib.AbstractContextManager[clients.Ask]],
  content: bytes,
  concurrency: int,
  seconds: float,
  max_requests: int,
) -> Load:
  """Asks with several clients at a time, until one of the limits.

  Each client asks once before, which is not measured: it connects.

  Args:
    client: Makes a client.
    content: What it asks.
    concurrency: Clients; they are threads of this process, whose work is in
      the latencies, too.
    seconds: Duration; requests that are being answered at its end are waited
      for.
    max_requests: Most requests of all.

  Raises:
    UserError: If a client gets no answer before.
  """
  stop, numbers = threading.Event(), itertools.count()
  ready = threading.Barrier(concurrency + 1)
  refusals: list[Exception] = []
  answers: list[tuple[float, float]] = []
  failures: collections.Counter[str] = collections.Counter()
  lock = threading.Lock()

  def work() -> None:
    with contextlib.ExitStack() as stack:
      try:
        ask = stack.enter_context(client())
        ask(content)
      except Exception as error:
        refusals.append(error)
        ready.abort()
        return
      with contextlib.suppress(threading.BrokenBarrierError):
        ready.wait()
        ready.wait()  # The clock has been started.
        while not stop.is_set() and next(numbers) < max_requests:
          start = time.perf_counter()
          try:
            ask(content)
          except Exception as error:
            with lock:
              failures[_reason(error)] += 1
            stop.wait(_AFTER_FAILURE_SECONDS)
          else:
            answers.append((start, time.perf_counter()))

  threads = [
    threading.Thread(target=work, name='client', daemon=True)
    for _ in range(concurrency)
  ]
  for thread in threads:
    thread.start()
  begun = time.perf_counter()
  try:
    with contextlib.suppress(threading.BrokenBarrierError):
      ready.wait()
      begun = time.perf_counter()
      ready.wait()
      for thread in threads:
        thread.join(max(0.0, begun + seconds - time.perf_counter()))
    stop.set()
    for thread in threads:
      thread.join()
  finally:  # Also at Ctrl-C.
    stop.set()
    ready.abort()
    for thread in threads:
      thread.join(_END_SECONDS)
  if refusals:
    raise errors.UserError(
      f'the server gives no answer: {_reason(refusals[0])}: '
      f'{_text(refusals[0])}'
    ) from refusals[0]
  times = np.array(answers).reshape(-1, 2)
  return Load(
    times[:, 0] - begun,
    1000 * (times[:, 1] - times[:, 0]),
    dict(failures),
    time.perf_counter() - begun,
  )


def _reason(error: Exception) -> str:
  """Returns a status of HTTP, a code of gRPC or the kind of an error."""
  if isinstance(error, errors.RequestError):
    return str(error.status)
  if isinstance(error, grpc.RpcError):
    return error.code().name
  if isinstance(error, (OSError, http.client.HTTPException)):
    return type(error).__name__
  raise error


def _text(error: Exception) -> str:
  if isinstance(error, grpc.RpcError):
    return error.details() or ''
  return str(error)
