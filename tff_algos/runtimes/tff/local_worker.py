"""Local TFF worker process: started in bounded time, always terminated.

TFF 0.87 runs computations in a child process, `worker_binary`, over gRPC. TFF's
own launcher waits without end if that process cannot start, hides its output,
and leaves it running when the program ends early. This class manages the
process instead:

*   `start` returns when the process answers, or raises with its output;
*   `close`, leaving the `with` block and the end of the interpreter end it;
*   the kernel ends it when this process dies, even by SIGKILL.

The worker listens on every network interface without authentication (TFF offers
no other way); `loopback.reserve_port` has the kernel drop what other machines
send there.
"""

import contextlib
import importlib.util
import os
import pathlib
import socket
import sys
import time

import grpc
from absl import logging

from tff_algos.core import errors
from tff_algos.runtimes import child_process, loopback

# Channel of the readiness probe: short retry intervals, and no proxies from the
# environment, which cannot reach the loopback interface.
_PROBE_OPTIONS = (
  ('grpc.enable_http_proxy', 0),
  ('grpc.initial_reconnect_backoff_ms', 50),
)
_POLL_SECONDS = 0.1


def find_worker_binary() -> pathlib.Path:
  """Returns the path of the installed TFF's worker, without importing TFF.

  Raises:
    RuntimeFailureError: If TFF is not installed.
  """
  spec = importlib.util.find_spec('tensorflow_federated')
  if spec is None or not spec.submodule_search_locations:
    raise errors.RuntimeFailureError(
      'tensorflow_federated is not installed in '
      f'{sys.prefix}. Run `make env`, and start programs with its Python.'
    )
  return pathlib.Path(
    spec.submodule_search_locations[0], 'data', 'worker_binary'
  )


class LocalWorker:
  """One TFF worker process on this machine.

  Either `with LocalWorker() as worker: ...`, or `start` and `close`. Safe to
  start from any thread: the worker lives on when that thread ends.
  """

  def __init__(
    self,
    *,
    start_timeout_seconds: float = 30.0,
    max_concurrent_computation_calls: int = -1,
  ):
    """Prepares a worker; `start` starts it.

    Args:
      start_timeout_seconds: Maximal wait for the worker to answer, > 0.
      max_concurrent_computation_calls: Number of clients that the worker
        computes at once, >= -1; -1 for no limit. Lower it when memory runs
        out.
    """
    self._start_timeout_seconds = start_timeout_seconds
    self._max_concurrent_calls = max_concurrent_computation_calls
    self._process: child_process.ChildProcess | None = None
    self._cleanup = contextlib.ExitStack()
    self._port = 0

  def __enter__(self) -> 'LocalWorker':
    self.start()
    return self

  def __exit__(self, *exc_info) -> None:
    self.close()

  @property
  def address(self) -> str:
    """Returns `host:port` of the worker's gRPC service."""
    return f'127.0.0.1:{self._port}'

  @property
  def pid(self) -> int | None:
    """Returns the worker's process id, or None before `start`."""
    return None if self._process is None else self._process.pid

  def start(self) -> None:
    """Starts the worker and waits until it answers.

    Raises:
      RuntimeFailureError: If the worker was started already, cannot be started,
        ends at once, or does not answer in time. It is then ended.
    """
    if self._process is not None:
      raise errors.RuntimeFailureError(
        f'this worker was started before, as process {self.pid}; '
        'make a new LocalWorker.'
      )
    binary = _check_binary(find_worker_binary().absolute())
    # Held while the worker runs: it keeps other machines out. And the worker
    # shares its port (SO_REUSEPORT), so a second worker with the same port
    # would silently receive half of the calls.
    reservation, self._port = loopback.reserve_port()
    self._cleanup.enter_context(reservation)
    self._process = child_process.ChildProcess(
      'TFF worker',
      [
        str(binary),
        f'--port={self._port}',
        f'--max_concurrent_computation_calls={self._max_concurrent_calls}',
      ],
      # Its output is kept for error texts, at any log level of this process.
      env={'TF_CPP_MIN_LOG_LEVEL': '0'},
    )
    self._cleanup.callback(self._process.end)
    try:
      self._process.start()
      self._wait_until_it_answers(self._process, binary)
    except BaseException:
      self.close()
      raise
    logging.info('TFF worker %d answers at %s', self.pid, self.address)

  def check_alive(self) -> None:
    """Raises RuntimeFailureError, with the last output, if it has ended."""
    if self._process is None:
      raise errors.RuntimeFailureError('the TFF worker was not started.')
    self._process.check_running()

  def close(self) -> None:
    """Ends the worker, if it is running and was started by this process."""
    self._cleanup.close()

  def _wait_until_it_answers(
    self, process: child_process.ChildProcess, binary: pathlib.Path
  ) -> None:
    deadline = time.monotonic() + self._start_timeout_seconds
    with grpc.insecure_channel(self.address, _PROBE_OPTIONS) as channel:
      ready: grpc.Future | None = None
      while time.monotonic() < deadline:
        process.check_running()
        # Until the worker listens, packets are dropped, after which gRPC waits
        # for a second.
        if ready is None and _accepts(self._port):
          ready = grpc.channel_ready_future(channel)
        if ready is not None:
          with contextlib.suppress(grpc.FutureTimeoutError):
            ready.result(timeout=_POLL_SECONDS)
            return
      if ready is not None:
        ready.cancel()
    raise errors.LostProcessError(
      f'the TFF worker {binary} did not answer at {self.address} within '
      f'{self._start_timeout_seconds:g} s. Is the machine overloaded, or '
      'loopback traffic blocked? Run `python -m binaries.doctor`. The worker '
      f'said:\n{process.tail()}'
    )


def _accepts(port: int) -> bool:
  with contextlib.suppress(OSError):
    socket.create_connection(('127.0.0.1', port), _POLL_SECONDS).close()
    return True
  return False


def _check_binary(binary: pathlib.Path) -> pathlib.Path:
  if not binary.is_file():
    raise errors.RuntimeFailureError(
      f'there is no TFF worker at {binary}. Install the environment again: '
      '`make clean env`.'
    )
  if not os.access(binary, os.X_OK):
    raise errors.RuntimeFailureError(
      f'the TFF worker {binary} may not be executed: run '
      f'`chmod +x {binary}`, and check that its disk is not mounted noexec.'
    )
  return binary
