"""Version folders `<base>/<version>/` in the layout of TensorFlow Serving."""

import contextlib
import os
import pathlib


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


def model_names(folder: pathlib.Path) -> list[str]:
  """Returns the names of the models with a version under a folder, sorted.

  Raises:
    OSError: If the folder cannot be listed.
  """
  names = []
  for base in sorted(folder.iterdir()):
    # Such as lost+found, which only root may read.
    with contextlib.suppress(PermissionError):
      if base.is_dir() and version_folders(base):
        names.append(base.name)
  return names


def busy(folder: pathlib.Path) -> str:
  """Returns the message if another process writes versions under a folder."""
  return f'another process is writing a bundle under {folder}'
