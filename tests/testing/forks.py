"""Child processes that are forked here and killed for good."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator


def run_killed_at(function: Callable[[], None], event_number: int) -> bool:
  """Runs a function in a child that `SIGKILL` ends at one of its events.

  Args:
    function: Touches files, and does not use TensorFlow's runtime.
    event_number: The child is killed just before it opens, makes, renames or
      removes a file or folder for the `event_number`-th time, from 1.

  Returns:
    Whether it was killed; False if it came to its end before.
  """
  pid = os.fork()
  if pid == 0:
    count = 0

    def hook(event, unused_arguments):
      nonlocal count
      if event == 'open' or event.startswith(('os.', 'shutil.')):
        count += 1
        if count == event_number:
          os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    try:
      function()
      os._exit(0)
    finally:
      os._exit(1)
  _, status = os.waitpid(pid, 0)
  exit_code = os.waitstatus_to_exitcode(status)
  assert exit_code in (0, -signal.SIGKILL), f'the child failed: {exit_code}'
  return exit_code == -signal.SIGKILL


@contextlib.contextmanager
def child(function: Callable[[], None]) -> Iterator[int]:
  """Runs a function in a child for the block, then kills it; yields its pid.

  The block is entered when the function has called the argument that it gets.
  """
  read_end, write_end = os.pipe()
  pid = os.fork()
  if pid == 0:
    try:
      function(lambda: os.write(write_end, b'.'))
    finally:
      os._exit(1)
  os.close(write_end)
  try:
    assert os.read(read_end, 1), 'the child ended too early'
    yield pid
  finally:
    os.close(read_end)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
