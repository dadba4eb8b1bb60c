"""Lock of a workdir: one training process at a time."""

import contextlib
import os
import pathlib
from collections.abc import Generator

from tff_algos.core import errors, folder_lock


@contextlib.contextmanager
def lock(workdir: str | os.PathLike[str]) -> Generator[None]:
  """Locks a workdir for this process; see `folder_lock`.

  Args:
    workdir: The folder.

  Raises:
    UserError: If the folder is missing or is none.
    OSError: If the disk is full or may not be written.
    WorkdirBusyError: If another process holds the lock; names the process.
  """
  folder = pathlib.Path(workdir)
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(folder_lock.exclusive(folder, 'busy'))
    except errors.WorkdirBusyError:
      raise errors.WorkdirBusyError(
        f'{folder} is in use by process {_holder(folder)}; wait for it, end '
        'it, or take another --workdir'
      ) from None
    except OSError as error:
      if errors.is_of_disk(error):
        raise
      raise errors.UserError(
        f'--workdir={folder} cannot be used: {error.strerror}. '
        'binaries.preprocess makes one, with the dataset'
      ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    yield


def _holder(folder: pathlib.Path) -> str:
  try:
    return (folder / folder_lock.FILE).read_text() or 'unknown'
  except FileNotFoundError:
    return 'unknown'
