"""Lock of a workdir: one training process at a time."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Generator
from typing import IO

from tff_algos.core import durable, errors


@contextlib.contextmanager
def lock(workdir: str | os.PathLike[str]) -> Generator[None]:
  """Locks a workdir for this process.

  The kernel releases the lock when the process ends in any way; the file is
  removed on leaving the block.

  Args:
    workdir: The folder.

  Raises:
    UserError: If the folder is missing or is none.
    OSError: If the disk is full or may not be written.
    WorkdirBusyError: If another process holds the lock; names the process.
  """
  folder = pathlib.Path(workdir)
  path = folder / '.lock'
  durable.check_file_place(path)
  while True:
    try:
      file = open(path, 'a+')  # noqa: SIM115
    except OSError as error:
      if error.errno in errors.OF_DISKS:
        raise
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
    # Its holder may have removed the file between opening and locking.
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
  """Returns whether a path still refers to an open file."""
  try:
    return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
  except FileNotFoundError:
    return False
