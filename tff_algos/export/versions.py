"""Version folders `<base>/<version>/` in the layout of TensorFlow Serving."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Generator

from tff_algos.core import errors


def version_folders(
  base_dir: str | os.PathLike[str],
) -> dict[int, pathlib.Path]:
  """Returns version -> folder under one model's base, ascending.

  Other entries, such as a hidden folder that is still being written, are
  ignored.

  Raises:
    OSError: If the base cannot be listed.
  """
  folders = {
    int(entry.name): entry
    for entry in pathlib.Path(base_dir).iterdir()
    if entry.name.isascii() and entry.name.isdigit() and entry.is_dir()
  }
  return dict(sorted(folders.items()))


@contextlib.contextmanager
def exclusive(folder: pathlib.Path) -> Generator[None]:
  """Locks a folder against other processes that write versions there.

  The lock ends with the process that holds it, and leaves no file.

  Raises:
    WorkdirBusyError: If another process holds it.
  """
  descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise errors.WorkdirBusyError(
        f'another process is writing a bundle under {folder}. Wait for it.'
      ) from None
    yield
  finally:
    os.close(descriptor)
