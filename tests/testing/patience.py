"""Waits for other threads, processes and servers."""

import inspect
import time

import psutil

_POLL_SECONDS = 0.005


def until(is_so, seconds=60, alive=()):
  """Waits until something is so, and returns what `is_so` returned then.

  Args:
    is_so: A lambda; an error quotes its line.
    seconds: After which it is an error.
    alive: Programs or `subprocess.Popen`s, of which none may end before.
  """
  deadline = time.monotonic() + seconds
  while not (found := is_so()):
    for program in alive:
      ended = program.poll()
      assert ended is None, f'the program ended with {ended}: {program.stderr}'
    if time.monotonic() > deadline:
      line = inspect.getsource(is_so).strip()
      raise AssertionError(f'waited in vain for {seconds} seconds: {line}')
    time.sleep(_POLL_SECONDS)
  return found


def is_gone(pid: int) -> bool:
  """Returns whether a process has ended; its parent may not have asked how."""
  try:
    return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return True
