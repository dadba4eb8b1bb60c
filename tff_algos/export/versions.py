"""Version folders `<base>/<version>/` in the layout of TensorFlow Serving."""

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


def busy(folder: pathlib.Path) -> str:
  """Returns the message if another process writes versions under a folder."""
  return f'another process is writing a bundle under {folder}'
