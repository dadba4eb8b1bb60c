"""One file per round of a run; those of later rounds are removed on resume.

`<folder>/round_000012<suffix>` in the workdir is written before the round's row
of `metrics.csv` and removed with it, so that no row lacks its file.
"""

import os
import pathlib
import re
from collections.abc import Callable
from typing import IO

from tff_algos.core import durable, records


class RoundFiles:
  """Writer of the files, and their entries."""

  def __init__(
    self, workdir: str | os.PathLike[str], folder: str, suffix: str
  ) -> None:
    """Opens no file.

    Args:
      workdir: The run's folder.
      folder: Name of the files' folder in it.
      suffix: Suffix of the files' names, with its dot.
    """
    self._folder = pathlib.Path(workdir, folder)
    self._suffix = suffix
    self._entries: dict[str, records.Entry] = {}

  @property
  def entries(self) -> records.Entries:
    """Returns the entries of all files."""
    return self._entries

  def path_of(self, round_num: int) -> pathlib.Path:
    """Returns the file of a round, 0 for the initial state."""
    return self._folder / f'round_{round_num:06d}{self._suffix}'

  def resume(self, round_num: int, entries: records.Entries) -> None:
    """Removes the files of all rounds after a round.

    Args:
      round_num: The round; 0 removes all files.
      entries: Checked entries of the files until it, as far as there are any.
    """
    self._entries = {}
    if os.path.lexists(self._folder):
      durable.make_folder(self._folder)  # Raises if it is a file.
    for path in sorted(self._folder.glob('round_*')):
      durable.check_file_place(path)
      whole = re.fullmatch(r'round_(\d{6,})', path.stem)
      is_other = path.suffix != self._suffix
      if whole and not is_other and 0 < round_num >= int(whole[1]):
        name = self._name(path)
        self._entries[name] = entries.get(name) or records.describe_file(path)
      elif whole or is_other:
        path.unlink()

  def write(
    self, round_num: int, write_to: Callable[[IO[bytes]], object]
  ) -> None:
    """Writes a round's file atomically.

    Args:
      round_num: The round.
      write_to: Writes the content to an open file.

    Raises:
      InfrastructureError: If the disk refuses.
    """
    path = self.path_of(round_num)
    with durable.writing(path):
      durable.make_folder(self._folder)
      with durable.replacing(path, 'wb') as file:
        write_to(file)
      self._entries[self._name(path)] = records.describe_file(path)

  def _name(self, path: pathlib.Path) -> str:
    return f'{self._folder.name}/{path.name}'
