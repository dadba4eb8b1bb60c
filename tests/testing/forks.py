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
import time
from collections.abc import Callable, Iterator

from tests.testing import programs

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.005


def start(
  launcher: programs.Launcher,
  function: Callable[..., None],
  *arguments: object,
  event_number: int = 0,
) -> programs.Program:
  """Starts a function in a child.

  Args:
    launcher: Forks the child.
    function: Of a module's top level; gets the arguments as strings.
    *arguments: Are turned into strings.
    event_number: The child is killed by `SIGKILL` just before it opens, makes,
      renames or removes a file or folder for the `event_number`-th time, from 1;
      0: never.

  Returns:
    The child. It fails with the traceback on its stderr if the function does.
  """
  return launcher.start(
    __name__,
    str(event_number),
    function.__module__,
    function.__name__,
    *map(str, arguments),
  )


def run_killed_at(
  launcher: programs.Launcher,
  event_number: int,
  function: Callable[..., None],
  *arguments: object,
) -> bool:
  """Runs a function in a child that is killed at an event; see `start`.

  Returns:
    Whether it was killed; False if it came to its end before.
  """
  program = start(launcher, function, *arguments, event_number=event_number)
  assert program.wait().returncode in (0, -signal.SIGKILL), _end_of(program)
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
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not program.stdout:
      assert program.poll() is None, _end_of(program)
      assert time.monotonic() < deadline, 'the child is not ready'
      time.sleep(_POLL_SECONDS)
    yield program.pid
  finally:
    program.send_signal(signal.SIGKILL)
    program.wait()


def ready() -> None:
  """Lets `child` enter its block; for the function in the child."""
  print('ready', flush=True)


def _end_of(program: programs.Program) -> str:
  return f'the child ended with {program.returncode}: {program.stderr}'


def _kill_at(event_number: int) -> None:
  count = 0

  def hook(event, unused_arguments):
    nonlocal count
    if event == 'open' or event.startswith(('os.', 'shutil.')):
      count += 1
      if count == event_number:
        os.kill(os.getpid(), signal.SIGKILL)

  sys.addaudithook(hook)


if __name__ == '__main__':
  function = getattr(importlib.import_module(sys.argv[2]), sys.argv[3])
  if int(sys.argv[1]):
    _kill_at(int(sys.argv[1]))
  function(*sys.argv[4:])
