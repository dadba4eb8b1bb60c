"""Lock of a folder against other processes of this machine."""

import contextlib
import fcntl
import os
import pathlib
import time
from collections.abc import Generator

from tff_algos.core import errors

_POLL_SECONDS = 0.05


def exclusive(
  folder: pathlib.Path, busy: str, patience_seconds: float = 0.0
) -> contextlib.AbstractContextManager[None]:
  """Locks a folder within the block.

  The lock ends with the process that holds it, however that ends, and leaves no
  file.

  Args:
    folder: The folder.
    busy: Message if another process holds the lock, without what to do.
    patience_seconds: How long to wait for another process.

  Raises:
    WorkdirBusyError: If another process holds it, or shares it.
  """
  return _locked(folder, fcntl.LOCK_EX, busy, patience_seconds)


def shared(
  folder: pathlib.Path, busy: str, patience_seconds: float = 0.0
) -> contextlib.AbstractContextManager[None]:
  """Keeps `exclusive` from others within the block, but not `shared`."""
  return _locked(folder, fcntl.LOCK_SH, busy, patience_seconds)


@contextlib.contextmanager
def _locked(
  folder: pathlib.Path, kind: int, busy: str, patience_seconds: float
) -> Generator[None]:
  descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    deadline = time.monotonic() + patience_seconds
    while not _takes(descriptor, kind):
      if time.monotonic() >= deadline:
        raise errors.WorkdirBusyError(f'{busy}. Wait for it.')
      time.sleep(_POLL_SECONDS)
    yield
  finally:
    os.close(descriptor)


def _takes(descriptor: int, kind: int) -> bool:
  try:
    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True
