"""Memberships of all clients at every evaluation, read one round at a time."""

import dataclasses
import functools
import pathlib
import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tff_algos.core import errors
from tff_algos.evaluation import association

_FILE = re.compile(r'round_(\d{6,})\.npy')


@dataclasses.dataclass(frozen=True)
class MembershipHistory:
  """The files `memberships/round_*.npy` of a run.

  Attributes:
    folder: Folder of the files.
    rounds: Evaluated rounds, int64 `[n]`, ascending, n >= 1.
  """

  folder: pathlib.Path
  rounds: np.ndarray

  def map(self, function: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Returns a function of each round's memberships, stacked over rounds.

    Keeps one round in memory at a time.

    Args:
      function: float32 `[num_clients, num_clusters]` -> `[...]`.

    Returns:
      `[n, ...]`.

    Raises:
      DataError: If a file is damaged, or of another size than the first.
    """
    return self._read(self.rounds, function)

  def _read(self, rounds, function):
    found, shape = [], None
    for round_num in rounds:
      path = self.folder / f'round_{round_num:06d}.npy'
      try:
        memberships = np.load(path)
      except (OSError, ValueError, EOFError) as error:
        raise errors.DataError(f'{path} cannot be read: {error}.') from None
      shape = shape or memberships.shape
      if memberships.ndim != 2 or memberships.shape != shape:
        raise errors.DataError(
          f'{path} has shape {memberships.shape}, the first round has '
          f'{shape}. Does it belong to another run?'
        )
      found.append(function(memberships))
    return np.stack(found)

  @functools.cached_property
  def num_clients(self) -> int:
    """Returns the number of clients, the same in every round."""
    return len(self.at(np.array([0]))[0])

  def at(self, positions: np.ndarray) -> np.ndarray:
    """Returns the memberships of some rounds.

    Args:
      positions: In `rounds`, int64 `[m]`, m >= 1.

    Returns:
      float32 `[m, num_clients, num_clusters]`.

    Raises:
      DataError: Like `map`.
    """
    return self._read(self.rounds[positions], lambda memberships: memberships)

  @functools.cached_property
  def main_clusters(self) -> np.ndarray:
    """Returns each client's cluster of largest membership.

    Returns:
      int64 `[n, num_clients]`; `association.UNDECIDED` where all tie.
    """
    return self.map(association.main_clusters)

  @functools.cached_property
  def has_unsampled(self) -> bool:
    """Returns whether a client had no membership at an evaluation."""
    return not self.map(has_membership).all()

  @functools.cached_property
  def last_change(self) -> int | None:
    """Returns the position in `rounds` of the last change of a main cluster.

    Returns:
      None if no client ever changed.
    """
    changed = (self.main_clusters[1:] != self.main_clusters[:-1]).any(axis=1)
    return 1 + int(np.flatnonzero(changed)[-1]) if changed.any() else None

  @functools.cached_property
  def settled_round(self) -> int | None:
    """Returns the round after which no client changed its main cluster.

    Returns:
      The first such evaluated round. None if it cannot be determined, since no
      later evaluation has newly estimated memberships: soft memberships that
      are bitwise equal were not estimated again; hard ones may stay equal.
    """
    first = self.last_change or 0
    checksums = self.map(lambda memberships: zlib.crc32(memberships.tobytes()))
    is_hard = self.map(
      lambda memberships: np.isin(memberships, (0.0, 1.0)).all()
    )
    is_new = is_hard[1:] | (checksums[1:] != checksums[:-1])
    return int(self.rounds[first]) if is_new[first:].any() else None


def has_membership(memberships: np.ndarray) -> np.ndarray:
  """Returns which clients have a membership.

  An estimate sums to 1 or more over the clusters. Before the first one, all
  entries are 0, or FedSoft's `importance_smoother`, whose sum is taken to be
  below 0.99.

  Args:
    memberships: `[num_clients, num_clusters]`.

  Returns:
    bool `[num_clients]`.
  """
  return memberships.sum(axis=1) >= 0.99


def read(workdir: pathlib.Path, last_round: int) -> MembershipHistory | None:
  """Returns the memberships of a run; None without any.

  Args:
    workdir: The folder of the run.
    last_round: Last round to read; a killed process may have left the file of
      a later one.
  """
  folder = workdir / 'memberships'
  rounds = np.array(
    sorted(
      round_num
      for path in folder.glob('round_*.npy')
      if (match := _FILE.fullmatch(path.name))
      and (round_num := int(match[1])) <= last_round
    ),
    np.int64,
  )
  return MembershipHistory(folder, rounds) if len(rounds) else None
