"""Log of the clients' memberships: one array per evaluated round.

`memberships/round_000012.npy` in the workdir is float32 `[num_clients,
num_clusters]`, with clients in the order of the dataset. It is written before
the round's row of `metrics.csv` and removed with it on resume, so that every
row with an evaluation has its file. An evaluation takes 4 * num_clients *
num_clusters bytes.
"""

import io
import os
import pathlib
import re

import numpy as np

from tff_algos.core import durable, records

_FILE = re.compile(r'round_(\d{6,})\.npy')


class MembershipLog:
  """Writer of the memberships of evaluated rounds."""

  def __init__(self, workdir: str | os.PathLike[str]):
    """Opens no file.

    Args:
      workdir: Parent folder of `memberships/`.
    """
    self._folder = pathlib.Path(workdir, 'memberships')
    self._entries: dict[str, records.Entry] = {}

  @property
  def entries(self) -> records.Entries:
    """Returns the entries of all files."""
    return self._entries

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
      whole = _FILE.fullmatch(path.name)
      if whole and 0 < round_num >= int(whole[1]):
        name = self._name(path)
        self._entries[name] = entries.get(name) or records.describe_file(path)
      elif whole or path.suffix != '.npy':
        path.unlink()

  def record(self, round_num: int, memberships: np.ndarray) -> None:
    """Writes one round's file atomically.

    Args:
      round_num: The round; 0 is the initial state.
      memberships: `[num_clients, num_clusters]`.

    Raises:
      InfrastructureError: If the disk refuses.
    """
    path = self._folder / f'round_{round_num:06d}.npy'
    content = io.BytesIO()
    np.save(content, np.asarray(memberships, np.float32))
    with durable.writing(path):
      durable.make_folder(self._folder)
      with durable.replacing(path, 'wb') as file:
        file.write(content.getbuffer())
    self._entries[self._name(path)] = records.describe(content.getvalue())

  def _name(self, path: pathlib.Path) -> str:
    return f'{self._folder.name}/{path.name}'
