"""Functions in child processes that are killed for good.

The launcher forks them, as it forks programs. A fork of the test's own process
would hold what other tests left in it, gRPC's threads among others, which no
fork survives for sure.
"""

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from tests.testing import patience, programs

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Events of shutil.rmtree are relative to a folder that is open.
_RELATIVE = ('os.remove', 'os.rmdir')
_CHANGES = (
  *('open', 'os.chmod', 'os.link', 'os.mkdir', 'os.rename', 'os.symlink'),
  *('os.truncate', 'os.utime', *_RELATIVE),
)


class Killer:
  """Audit hook that counts changes, and kills the process just before one."""

  def __init__(self, folder: str, place: str, delay: float = 0.0):
    self.count = 0
    self._folder = folder
    self._place = place
    self._delay = delay
    self._lock = threading.Lock()

  def __call__(self, event: str, arguments: tuple) -> None:
    if event not in _CHANGES:
      return
    paths = [os.fsdecode(one) for one in arguments if _is_path(one)]
    is_inside = any(path.startswith(self._folder) for path in paths)
    is_relative = event in _RELATIVE and arguments[-1] != -1
    if not (is_inside or is_relative):
      return
    if event == 'open' and not arguments[2] & _WRITES:
      return
    with self._lock:
      self.count += 1
      number = self.count
    if self._is_place(number, ' '.join((event, *paths))):
      if self._delay:
        threading.Timer(self._delay, _kill).start()
      else:
        _kill()

  def _is_place(self, number: int, text: str) -> bool:
    if self._place.isdecimal():
      return number == int(self._place)
    return bool(self._place) and self._place in text


def _is_path(argument) -> bool:
  return isinstance(argument, (str, bytes, os.PathLike))


def _kill() -> None:
  os.kill(os.getpid(), signal.SIGKILL)


def start(
  launcher: programs.Launcher,
  function: Callable[..., None],
  *arguments: object,
  change_number: int = 0,
) -> programs.Program:
  """Starts a function in a child.

  Args:
    launcher: Forks the child.
    function: Of a module's top level; gets the arguments as strings.
    *arguments: Are turned into strings.
    change_number: The child is killed by `SIGKILL` just before this change of
      the folder that the first argument names, from 1; 0: never.

  Returns:
    The child. It fails with the traceback on its stderr if the function does.
  """
  return launcher.start(
    __name__,
    str(change_number),
    function.__module__,
    function.__name__,
    *map(str, arguments),
  )


def run_killed_at(
  launcher: programs.Launcher,
  change_number: int,
  function: Callable[..., None],
  *arguments: object,
) -> bool:
  """Runs a function in a child that is killed at a change; see `start`.

  Returns:
    Whether it was killed; False if it came to its end before.
  """
  program = start(launcher, function, *arguments, change_number=change_number)
  assert program.wait().returncode in (0, -signal.SIGKILL), program.stderr
  return program.returncode == -signal.SIGKILL


@contextlib.contextmanager
def child(
  launcher: programs.Launcher,
  function: Callable[..., None],
  *arguments: object,
) -> Iterator[int]:
  """Runs a function in a child for the block, then kills it; yields its pid.

  The block is entered when the function has called `ready`.
  """
  program = start(launcher, function, *arguments)
  try:
    patience.until(lambda: program.stdout, alive=[program])
    yield program.pid
  finally:
    program.send_signal(signal.SIGKILL)
    program.wait()


def ready() -> None:
  """Lets `child` enter its block; for the function in the child."""
  print('ready', flush=True)


if __name__ == '__main__':
  function = getattr(importlib.import_module(sys.argv[2]), sys.argv[3])
  if int(sys.argv[1]):
    sys.addaudithook(Killer(sys.argv[4], sys.argv[1]))
  function(*sys.argv[4:])
