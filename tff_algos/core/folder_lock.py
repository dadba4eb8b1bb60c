"""Lock of a folder against other processes of this machine."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Generator

from tff_algos.core import errors


@contextlib.contextmanager
def exclusive(folder: pathlib.Path, busy: str) -> Generator[None]:
  """Locks a folder within the block.

  The lock ends with the process that holds it, however that ends, and leaves no
  file.

  Args:
    folder: The folder.
    busy: Message if another process holds the lock, without what to do.

  Raises:
    WorkdirBusyError: If another process holds it.
  """
  descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise errors.WorkdirBusyError(f'{busy}. Wait for it.') from None
    yield
  finally:
    os.close(descriptor)
