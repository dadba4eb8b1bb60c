"""Durable, atomic writes: fsync, rename, fsync of the folder.

A file system may make a rename permanent before the data of the renamed file,
and a name only when its folder is synced (Pillai et al., "All File Systems Are
Not Created Equal", OSDI 2014). All functions but `writing` raise OSError if the
disk refuses, and DataError if a folder stands where a file belongs, or the
reverse.
"""

import contextlib
import errno
import os
import pathlib
from collections.abc import Generator
from typing import IO, Any

from tff_algos.core import errors


def sync(path: pathlib.Path) -> None:
  """Makes a file's data, or the names in a folder, permanent.

  Some network file systems, which keep names at once, know no fsync of folders.
  """
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
      raise
  finally:
    os.close(descriptor)


def sync_all(folder: pathlib.Path) -> None:
  """Makes a folder and everything in it permanent, but not its own name."""
  for path in (*folder.rglob('*'), folder):
    sync(path)


def make_folder(folder: pathlib.Path) -> None:
  """Makes a folder and its missing parents, permanently."""
  if folder.is_dir():
    return
  # Another process may have made it since.
  if os.path.lexists(folder) and not folder.is_dir():
    raise errors.DataError(
      f'{folder} is a file, where a folder belongs. Remove it, and run the '
      'same command again'
    )
  if not folder.parent.is_dir():
    make_folder(folder.parent)
  folder.mkdir(exist_ok=True)
  sync(folder.parent)


def check_file_place(path: pathlib.Path) -> None:
  """Raises DataError if a folder stands where a file is to be written."""
  if path.is_dir():
    raise errors.DataError(
      f'{path} is a folder, where a file belongs. Remove it, and run the same '
      'command again'
    )


def publish(made: pathlib.Path, place: pathlib.Path) -> None:
  """Moves a finished folder to its place atomically.

  Args:
    made: The folder, on the same file system.
    place: Does not exist; its parent does.
  """
  sync_all(made)
  os.rename(made, place)
  sync(place.parent)


@contextlib.contextmanager
def writing(path: pathlib.Path, *also: type[Exception]) -> Generator[None]:
  """Explains the error of a block that writes a file of a run.

  Args:
    path: The file or folder.
    *also: Errors that mean, beside OSError, that the disk refused.

  Raises:
    InfrastructureError: If the disk refuses.
  """
  try:
    yield
  except (OSError, *also) as error:
    raise errors.InfrastructureError(
      f'cannot write {path}: {getattr(error, "strerror", None) or error}. Free '
      'some space and run the same command again to resume'
    ) from error


@contextlib.contextmanager
def replacing(
  path: pathlib.Path, mode: str = 'w', **options: Any
) -> Generator[IO[Any]]:
  """Yields a file that atomically replaces `path` when the block succeeds.

  Until then it is `<path>.writing`, which is removed if the block fails.

  Args:
    path: Its folder exists.
    mode: Mode of `open`.
    **options: Other options of `open`.
  """
  check_file_place(path)
  temporary = path.with_name(f'{path.name}.writing')
  try:
    with open(temporary, mode, **options) as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(path.parent)
  finally:
    temporary.unlink(missing_ok=True)
