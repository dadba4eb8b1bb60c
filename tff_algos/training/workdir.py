"""One trainer per workdir: a lock that dies with its process."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Generator
from typing import IO

from tff_algos.core import errors


@contextlib.contextmanager
def lock(workdir: str | os.PathLike[str]) -> Generator[None]:
  """Holds a workdir for this process.

  The kernel gives the lock back when the process ends, however it ends; the
  file is removed when the block is left.

  Args:
    workdir: The folder.

  Raises:
    UserError: If the folder is missing or cannot be written to.
    WorkdirBusyError: If another process holds it; names the process.
  """
  folder = pathlib.Path(workdir)
  path = folder / '.lock'
  while True:
    try:
      file = open(path, 'a+')  # noqa: SIM115
    except OSError as error:
      raise errors.UserError(
        f'--workdir={folder} cannot be used: {error.strerror}. '
        'binaries.preprocess makes one, with the dataset'
      ) from error
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      file.seek(0)
      holder = file.read().strip() or 'unknown'
      file.close()
      raise errors.WorkdirBusyError(
        f'{folder} is in use by process {holder}; wait for it, end it, or take '
        'another --workdir'
      ) from None
    # Its holder may have removed the file between our open and our lock.
    if _is_at(path, file):
      break
    file.close()
  try:
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    yield
  finally:
    path.unlink(missing_ok=True)
    file.close()


def _is_at(path: pathlib.Path, file: IO[str]) -> bool:
  """Returns whether a path still leads to an open file."""
  try:
    return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
  except FileNotFoundError:
    return False
