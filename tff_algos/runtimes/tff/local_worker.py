"""Local TFF worker process: started in bounded time, always terminated.

TFF 0.87 runs computations in a child process, `worker_binary`, over gRPC. TFF's
own launcher waits without end if that process cannot start, hides its output,
and leaves it running when the program ends early. This class manages the
process instead:

*   `start` returns when the process answers, or raises with its output;
*   `close`, leaving the `with` block and the end of the interpreter end it;
*   the kernel ends it when this process dies, even by SIGKILL.

The worker listens on every network interface without authentication (TFF offers
no other way): on a shared network, protect its port by a firewall.
"""

import atexit
import contextlib
import importlib.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import grpc
from absl import logging

from tff_algos.core import checks, errors

# Channel of the readiness probe: short retry intervals, and no proxies from the
# environment, which cannot reach the loopback interface.
_PROBE_OPTIONS = (
  ('grpc.enable_http_proxy', 0),
  ('grpc.initial_reconnect_backoff_ms', 50),
)
_TAIL_BYTES = 8192
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 5.0

# Becomes the worker (`exec`), after asking the kernel to be killed when the
# thread that started it ends. A `preexec_fn` could do the same, but it may
# deadlock in a process with threads, which every TensorFlow process is.
_LAUNCHER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
  sys.exit('prctl(PR_SET_PDEATHSIG) failed')
if os.getppid() != int(sys.argv[1]):
  sys.exit('the parent process is already gone')
os.execv(sys.argv[2], sys.argv[2:])
"""


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
    binary_path: str | os.PathLike[str] | None = None,
    *,
    start_timeout_seconds: float = 30.0,
    max_concurrent_computation_calls: int = -1,
  ):
    """Prepares a worker; `start` starts it.

    Args:
      binary_path: The program; by default the one inside the installed TFF.
      start_timeout_seconds: Maximal wait for the worker to answer, > 0.
      max_concurrent_computation_calls: Number of clients that the worker
        computes at once; -1 for no limit. Lower it when memory runs out.

    Raises:
      ConfigError: If a number is out of range.
    """
    self._binary_path = binary_path
    self._start_timeout_seconds = checks.check_positive(
      'start_timeout_seconds', start_timeout_seconds
    )
    self._max_concurrent_calls = checks.check_int(
      'max_concurrent_computation_calls',
      max_concurrent_computation_calls,
      minimum=-1,
    )
    self._process: subprocess.Popen[bytes] | None = None
    self._owner: _OwnerThread | None = None
    self._owner_pid = 0
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
    binary = _check_binary(self._binary_path or find_worker_binary())
    # Bound, but never listened on, while the worker runs: the worker shares its
    # port (SO_REUSEPORT), so a second worker with the same port would silently
    # receive half of the calls.
    reservation, self._port = _reserve_port()
    self._cleanup.enter_context(reservation)
    self._owner_pid = os.getpid()
    owner = self._owner = _OwnerThread(
      [
        str(binary),
        f'--port={self._port}',
        f'--max_concurrent_computation_calls={self._max_concurrent_calls}',
      ]
    )
    self._cleanup.callback(owner.end_process)
    atexit.register(self.close)
    try:
      owner.start()
      self._process = owner.wait_for_process()
      self._wait_until_it_answers(owner.binary)
    except BaseException:
      self.close()
      raise
    logging.info('TFF worker %d answers at %s', self.pid, self.address)

  def is_alive(self) -> bool:
    """Returns whether the process is running."""
    return self._process is not None and self._process.poll() is None

  def check_alive(self) -> None:
    """Raises RuntimeFailureError, with the last output, if it has ended."""
    if self._owner is None or self._process is None:
      raise errors.RuntimeFailureError('the TFF worker was not started.')
    returncode = self._process.poll()
    if returncode is not None:
      raise errors.RuntimeFailureError(_obituary(self._owner, returncode))

  def stderr_tail(self) -> str:
    """Returns the last 8 KiB of the worker's stdout and stderr."""
    return '' if self._owner is None else self._owner.tail()

  def close(self) -> None:
    """Ends the worker, if it is running and was started by this process."""
    # A forked child inherits this object, but must not end the worker.
    if self._owner_pid != os.getpid():
      return
    atexit.unregister(self.close)
    self._cleanup.close()

  def _wait_until_it_answers(self, binary: str) -> None:
    deadline = time.monotonic() + self._start_timeout_seconds
    with grpc.insecure_channel(self.address, _PROBE_OPTIONS) as channel:
      ready = grpc.channel_ready_future(channel)
      while True:
        self.check_alive()
        try:
          ready.result(timeout=_POLL_SECONDS)
          return
        except grpc.FutureTimeoutError:
          if time.monotonic() < deadline:
            continue
        ready.cancel()
        raise errors.RuntimeFailureError(
          f'the TFF worker {binary} did not answer at '
          f'{self.address} within {self._start_timeout_seconds:g} s. Is the '
          'machine overloaded, or loopback traffic blocked? Run `python -m '
          f'binaries.doctor`. The worker said:\n{self.stderr_tail()}'
        )


class _OwnerThread(threading.Thread):
  """Starts the process, keeps the tail of its output, and reaps it.

  The kernel's "parent death" refers to the thread that forked, so that thread
  must live as long as the process.
  """

  def __init__(self, command: list[str]):
    # A daemon thread: the interpreter must reach `atexit`, which ends the
    # process.
    super().__init__(name='tff-worker-owner', daemon=True)
    self.binary = command[0]
    self._command = [
      *(sys.executable, '-I', '-S', '-c', _LAUNCHER, str(os.getpid())),
      *command,
    ]
    self._process: Any = None
    self._start_error: OSError | None = None
    self._spawned = threading.Event()
    self._tail = b''

  def run(self) -> None:
    """Runs until the process has ended."""
    try:
      self._process = subprocess.Popen(
        self._command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Its output is kept for error texts, at any log level of this process.
        env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '0'},
        # Ctrl-C in a terminal must reach this process, not the worker.
        start_new_session=True,
      )
    except OSError as error:
      self._start_error = error
      return
    finally:
      self._spawned.set()
    with self._process.stdout as output:
      while chunk := output.read1():
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
    self._process.wait()

  def wait_for_process(self) -> subprocess.Popen[bytes]:
    """Returns the process as soon as it is forked."""
    self._spawned.wait()
    if self._process is None:
      raise errors.RuntimeFailureError(
        f'the TFF worker cannot be started: {self._start_error}. Is the '
        'machine out of memory or processes?'
      )
    return self._process

  def end_process(self) -> None:
    """Ends the process and its children by SIGTERM, then SIGKILL."""
    if not self.is_alive():
      return
    self._spawned.wait()
    try:
      self._signal(signal.SIGTERM)
      self.join(_GRACE_SECONDS)
    finally:
      # Also when Ctrl-C interrupts the grace period.
      self._signal(signal.SIGKILL)
      self.join(_GRACE_SECONDS)

  def _signal(self, signum: int) -> None:
    if self._process is not None and self._process.poll() is None:
      os.killpg(self._process.pid, signum)

  def tail(self) -> str:
    """Returns the last output, whole characters only."""
    return self._tail.decode(errors='replace').strip()


def _check_binary(path: str | os.PathLike[str]) -> pathlib.Path:
  binary = pathlib.Path(path).absolute()
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


def _reserve_port() -> tuple[socket.socket, int]:
  """Returns a bound socket and its port, free on every interface."""
  dual = socket.has_dualstack_ipv6()
  reservation = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
  try:
    if dual:
      reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind(('', 0))
    return reservation, reservation.getsockname()[1]
  except OSError as error:
    reservation.close()
    raise errors.RuntimeFailureError(
      f'no free port for the TFF worker: {error}.'
    ) from error


def _obituary(owner: _OwnerThread, returncode: int) -> str:
  owner.join(_GRACE_SECONDS)
  words = owner.tail() or '(nothing)'
  return (
    f'the TFF worker {owner.binary} ended with '
    f'{_describe_exit(returncode)} The worker said:\n{words}'
  )


def _describe_exit(returncode: int) -> str:
  if returncode >= 0:
    return f'exit code {returncode}.'
  signum = -returncode
  names = {member.value: member.name for member in signal.Signals}
  hints: dict[int, str] = {
    signal.SIGILL: ' This CPU lacks instructions that the worker needs (AVX).',
    signal.SIGKILL: ' Somebody killed it: the kernel, if memory ran out.',
  }
  name = names.get(signum, str(signum))
  hint = hints.get(signum, '')
  return f'signal {name} ({signal.strsignal(signum)}).{hint}'
