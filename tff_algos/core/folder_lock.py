"""Lock of a folder against other processes, over NFS also of other machines.

It is a lock of a file in the folder: NFS sends no lock of a folder itself.
"""

import contextlib
import fcntl
import os
import pathlib
import time
from collections.abc import Generator
from typing import IO

from tff_algos.core import durable, errors

# File whose lock is that of its folder.
FILE = '.lock'
_POLL_SECONDS = 0.05


def exclusive(
  folder: pathlib.Path, busy: str, patience_seconds: float = 0.0
) -> contextlib.AbstractContextManager[IO[str]]:
  """Locks a folder within the block; yields the file, which is removed then.

  The lock ends with the process that holds it, however that ends; only the
  file of a killed one stays, until the next.

  Args:
    folder: The folder.
    busy: Message if another process holds the lock, without what to do.
    patience_seconds: How long to wait for another process.

  Raises:
    OSError: If the folder is missing, or nothing can be written there.
    WorkdirBusyError: If another process holds it, or shares it.
  """
  return _locked(folder, fcntl.LOCK_EX, busy, patience_seconds)


def shared(
  folder: pathlib.Path, busy: str, patience_seconds: float = 0.0
) -> contextlib.AbstractContextManager[IO[str]]:
  """Keeps `exclusive` from others, but not `shared`; the file stays."""
  return _locked(folder, fcntl.LOCK_SH, busy, patience_seconds)


@contextlib.contextmanager
def _locked(
  folder: pathlib.Path, kind: int, busy: str, patience_seconds: float
) -> Generator[IO[str]]:
  place = folder / FILE
  durable.check_file_place(place)
  deadline = time.monotonic() + patience_seconds
  while True:
    with open(place, 'a+') as file:
      try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
      except BlockingIOError:
        if time.monotonic() >= deadline:
          raise errors.WorkdirBusyError(f'{busy}. Wait for it.') from None
        time.sleep(_POLL_SECONDS)
        continue
      except OSError as error:
        if errors.is_of_disk(error):
          raise
        raise errors.UserError(
          f'{folder} cannot be locked: {error.strerror}. Mount its file system '
          'with locks (flock), or work on another one'
        ) from error
      # Its holder may have removed the file between opening and locking.
      if not _is_at(place, file):
        continue
      try:
        yield file
      finally:
        if kind == fcntl.LOCK_EX:
          place.unlink(missing_ok=True)
      return


def _is_at(place: pathlib.Path, file: IO[str]) -> bool:
  """Returns whether a path still refers to an open file."""
  try:
    return os.path.samestat(os.stat(place), os.fstat(file.fileno()))
  except FileNotFoundError:
    return False
