"""Log of the clients' memberships: one array per evaluated round.

`memberships/round_000012.npy` in the workdir is float32 `[num_clients,
num_clusters]`, with clients in the order of the dataset. It is written before
the round's row of `metrics.csv` and removed with it on resume, so that every
row with an evaluation has its file. An evaluation takes 4 * num_clients *
num_clusters bytes.
"""

import os
import pathlib

import numpy as np

from tff_algos.core import durable, errors


class MembershipLog:
  """Writer of the memberships of evaluated rounds."""

  def __init__(self, workdir: str | os.PathLike[str]):
    """Opens no file.

    Args:
      workdir: Parent folder of `memberships/`.
    """
    self._folder = pathlib.Path(workdir, 'memberships')

  def resume(self, round_num: int) -> None:
    """Removes the files of all rounds after a round."""
    for path in self._folder.glob('round_*'):
      is_whole = path.suffix == '.npy'
      if not (is_whole and round_num and _round_of(path) <= round_num):
        path.unlink()

  def record(self, round_num: int, memberships: np.ndarray) -> None:
    """Writes one round's file atomically.

    Args:
      round_num: The round; 0 is the initial state.
      memberships: `[num_clients, num_clusters]`.

    Raises:
      CheckpointError: If writing fails.
    """
    path = self._folder / f'round_{round_num:06d}.npy'
    try:
      durable.make_folder(self._folder)
      with durable.replacing(path, 'wb') as file:
        np.save(file, np.asarray(memberships, np.float32))
    except OSError as error:
      raise errors.CheckpointError(
        f'cannot write {path}: {error.strerror or error}. Free some space and '
        'run the same command again to resume'
      ) from error


def _round_of(path: pathlib.Path) -> int:
  return int(path.stem.removeprefix('round_'))
