"""A child process that never outlives its owner, and its last words.

*   `end`, and the end of the interpreter, end it: SIGTERM, then SIGKILL;
    `terminate` sends SIGTERM alone, so that several end at the same time;
*   the kernel ends it when this process dies, even by SIGKILL.

Ctrl-C in a terminal reaches this process alone.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from tff_algos.core import errors

_TAIL_BYTES = 8192
_GRACE_SECONDS = 5.0

# Becomes the child (`exec`), after asking the kernel to be killed when the
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


class ChildProcess:
  """One child process; `start` and `end` may be called from any thread."""

  def __init__(
    self,
    what: str,
    command: Sequence[str],
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    grace_seconds: float = _GRACE_SECONDS,
  ):
    """Prepares a process.

    Args:
      what: Name of the process in error texts, such as `'TFF worker'`.
      command: Program and arguments.
      env: Environment variables beside those of this process.
      pass_fds: File descriptors that it inherits.
      grace_seconds: Time between SIGTERM and SIGKILL.
    """
    self._name = f'the {what} {command[0]}'
    self._command = [
      *(sys.executable, '-I', '-S', '-c', _LAUNCHER, str(os.getpid())),
      *command,
    ]
    self._env = {**os.environ, **env}
    self._pass_fds = tuple(pass_fds)
    self._grace_seconds = grace_seconds
    self._was_terminated = False
    self._process: subprocess.Popen[bytes] | None = None
    self._start_error: OSError | None = None
    self._spawned = threading.Event()
    self._tail = b''
    self._owner_pid = os.getpid()
    # The kernel's "parent death" refers to the thread that forked, so it lives
    # as long as the process. A daemon: the interpreter must reach `atexit`.
    self._thread = threading.Thread(
      target=self._own, name=f'{what} owner', daemon=True
    )

  def start(self) -> None:
    """Starts the process; returns as soon as it is forked.

    Raises:
      RuntimeFailureError: If it cannot be started.
    """
    atexit.register(self.end)
    self._thread.start()
    self._spawned.wait()
    if self._process is None:
      raise errors.RuntimeFailureError(
        f'{self._name} cannot be started: {self._start_error}. Is the machine '
        'out of memory or processes?'
      )

  @property
  def pid(self) -> int | None:
    """Returns the process id, or None before `start`."""
    return None if self._process is None else self._process.pid

  @property
  def is_running(self) -> bool:
    """Returns whether the process was started and has not ended."""
    return self._process is not None and self._process.poll() is None

  def check_running(self) -> None:
    """Raises RuntimeFailureError, with the last output, if it has ended.

    It is a LostProcessError if it was killed or terminated.
    """
    assert self._process is not None  # `start` has returned.
    returncode = self._process.poll()
    if returncode is not None:
      self._thread.join(_GRACE_SECONDS)
      is_killed = returncode in (-signal.SIGKILL, -signal.SIGTERM)
      kind = (
        errors.LostProcessError if is_killed else errors.RuntimeFailureError
      )
      raise kind(
        f'{self._name} ended with {_describe_exit(returncode)} It said:\n'
        f'{self.tail() or "(nothing)"}'
      )

  def wait(self) -> None:
    """Waits until the process has ended, for a few seconds at most."""
    self._thread.join(_GRACE_SECONDS)

  def tail(self) -> str:
    """Returns the last 8 KiB of its stdout and stderr, as text."""
    return self._tail.decode(errors='replace').strip()

  def terminate(self) -> None:
    """Sends SIGTERM to the process and its children, once; does not wait."""
    if not self._was_terminated:
      self._was_terminated = True
      self._signal(signal.SIGTERM)

  def end(self) -> None:
    """Ends the process and its children, if this process started it."""
    # A forked child inherits this object, but must not end the process.
    if self._owner_pid != os.getpid():
      return
    atexit.unregister(self.end)
    if not self._thread.is_alive():
      return
    self._spawned.wait()
    try:
      self.terminate()
      self._thread.join(self._grace_seconds)
    finally:
      # Also when Ctrl-C interrupts the grace period.
      self._signal(signal.SIGKILL)
      self._thread.join(_GRACE_SECONDS)

  def _own(self) -> None:
    """Runs until the process has ended."""
    try:
      self._process = subprocess.Popen(
        self._command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=self._env,
        pass_fds=self._pass_fds,
        # Ctrl-C in a terminal must reach this process, not the child.
        start_new_session=True,
      )
    except OSError as error:
      self._start_error = error
      return
    finally:
      self._spawned.set()
    assert self._process.stdout is not None  # It is a pipe.
    with self._process.stdout as output:
      while chunk := output.read1():  # pyright: ignore[reportAttributeAccessIssue]
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
    self._process.wait()

  def _signal(self, signum: int) -> None:
    if self.is_running and self._process is not None:
      # It may end, and be reaped by its owner thread, before the signal.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self._process.pid, signum)


def _describe_exit(returncode: int) -> str:
  if returncode >= 0:
    return f'exit code {returncode}.'
  signum = -returncode
  names = {member.value: member.name for member in signal.Signals}
  hints: dict[int, str] = {
    signal.SIGILL: ' This CPU lacks instructions that it needs (AVX).',
    signal.SIGKILL: ' Somebody killed it: the kernel, if memory ran out.',
  }
  name = names.get(signum, str(signum))
  hint = hints.get(signum, '')
  return f'signal {name} ({signal.strsignal(signum)}).{hint}'
