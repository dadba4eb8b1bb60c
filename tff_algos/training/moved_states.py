"""States of one population, moved by client id to another.

The known clients are those of the earlier run, followed by those that had left
before it and whose states it kept (`Departed`).
"""

import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import carrying, durable, errors
from tff_algos.core.structures import Structure
from tff_algos.training import checkpoint as checkpoint_lib
from tff_algos.training import client_state_store

_CLIENTS_FILE = 'clients.json'
_STATES_FILE = 'states.npz'
# Position of a client that is not known, or has no stored state.
_NONE = -1


class Moves(NamedTuple):
  """Origins of the new population's clients.

  Attributes:
    origin: Position among the known clients, those of the parent run before
      those that had left; int32 `[num_clients]`, -1 for newcomers.
    num_old: Number of clients of the parent run.
  """

  origin: np.ndarray
  num_old: int

  @property
  def newcomers(self) -> np.ndarray:
    """Returns the indices of the newcomers, int32."""
    return np.flatnonzero(self.origin < 0).astype(np.int32)


class Departed(NamedTuple):
  """States of clients that left before a run.

  Attributes:
    client_ids: The clients.
    num_runs: Number of runs since each left, the one that it left included.
    has_state: Which of them have a client state, bool `[n]`.
    client_states: Rows of those that have one, uint8 `[m, state bytes]`.
    server_rows: Their rows of the server state's leaves, `[n, ...]` each.
  """

  client_ids: tuple[str, ...] = ()
  num_runs: tuple[int, ...] = ()
  has_state: np.ndarray = np.zeros(0, bool)
  client_states: np.ndarray = np.zeros((0, 0), np.uint8)
  server_rows: tuple[np.ndarray, ...] = ()


class Carrier:
  """Moves a server state by its algorithm's rules."""

  def __init__(
    self,
    carry: carrying.Carry,
    moves: Moves,
    departed: Departed,
    has_state: np.ndarray,
    is_optimizer_anew: bool,
  ):
    """Takes the rules and the clients.

    Args:
      carry: The algorithm's declaration.
      moves: Origins of the new population's clients.
      departed: Clients that had left before the earlier run.
      has_state: Which of the known clients have a client state, bool
        `[num_known]`: those of the earlier run, then those that had left.
      is_optimizer_anew: Whether slots of the server optimizer are initial.
    """
    self._carry = carry
    self._moves = moves
    self._archive = iter(departed.server_rows)
    self._has_state = has_state
    self._is_optimizer_anew = is_optimizer_anew
    # Rows of all known clients, leaf by leaf.
    self.known_rows: list[np.ndarray] = []

  def move(self, old: Structure, initial: Structure) -> Structure:
    """Returns the server state of the new population."""
    initial = self._carry.newcomer_rows(old, initial)
    return self._move(self._carry.rules, old, initial)

  def _move(self, rule: Any, old: Any, initial: Any) -> Any:
    if not isinstance(rule, carrying.Rule):
      return old._replace(
        **{
          name: self._move(rule[name], getattr(old, name), value)
          for name, value in initial._asdict().items()
        }
      )
    return tf.nest.map_structure(
      lambda *leaves: self._move_leaf(rule, *leaves), old, initial
    )

  def _move_leaf(
    self, rule: carrying.Rule, old: np.ndarray, initial: np.ndarray
  ) -> np.ndarray:
    origin = self._moves.origin
    stays = (0 <= origin) & (origin < self._moves.num_old)
    match rule:
      case carrying.KEEP:
        return old
      case carrying.INITIAL:
        return initial
      case carrying.OPTIMIZER:
        return initial if self._is_optimizer_anew else old
      case carrying.CLIENT_SUM:
        # All others are 0 in the sum.
        brought = self._has_state[origin[origin >= 0]].sum()
        before = self._has_state[: self._moves.num_old].sum()
        return np.asarray(brought / max(before, 1) * old, old.dtype)
      case carrying.PAIRS:
        moved = np.array(initial)
        kept = np.flatnonzero(stays)
        moved[np.ix_(kept, kept)] = old[np.ix_(origin[kept], origin[kept])]
        return moved
      case _:  # CLIENTS, STAYING and CLUSTER.
        # A run whose options had no such rows archived none.
        num_departed = len(self._has_state) - self._moves.num_old
        none = np.repeat(initial[:1], num_departed, axis=0)
        rows = np.concatenate([old, next(self._archive, none)])
        self.known_rows.append(rows)
        moved = np.array(initial)
        takes = stays if rule is carrying.STAYING else origin >= 0
        moved[takes] = rows[origin[takes]]
        return moved


class StoredRows:
  """Stored client states of the known clients, as rows of bytes."""

  def __init__(
    self,
    folder: pathlib.Path,
    index: client_state_store.StoreIndex,
    departed: Departed,
  ):
    """Opens no file.

    Args:
      folder: Segments of the earlier run.
      index: Positions of its clients' states.
      departed: Clients that had left before.
    """
    self._segments: dict[int, np.ndarray] = {}
    self._folder = folder
    self._segment = index.segment
    self._position = index.position
    self._departed = departed.client_states
    archived = np.cumsum(departed.has_state) - 1
    self._archived = np.where(departed.has_state, archived, _NONE)

  def has_state(self) -> np.ndarray:
    """Returns which of the known clients have one, bool."""
    return np.concatenate([self._segment > 0, self._archived != _NONE])

  def row(self, known: int) -> np.ndarray:
    """Returns the row of a known client that has a state."""
    num_old = len(self._segment)
    if known >= num_old:
      return self._departed[self._archived[known - num_old]]
    number = int(self._segment[known])
    if number not in self._segments:
      path = client_state_store.segment_path(self._folder, number)
      try:
        self._segments[number] = np.load(path, mmap_mode='r')
      except FileNotFoundError:
        raise errors.CheckpointError(
          f'{path} was removed while it was read, by a training that goes on '
          'and keeps its latest checkpoints: run the same command again'
        ) from None
    return self._segments[number][self._position[known]]


def read_departed(workdir: pathlib.Path) -> Departed:
  """Returns the clients that had left before a run, with their states."""
  folder = workdir / checkpoint_lib.FOLDER / checkpoint_lib.DEPARTED
  if not folder.exists():
    return Departed()
  described = json.loads((folder / _CLIENTS_FILE).read_text())
  with np.load(folder / _STATES_FILE) as file:
    has_state, client_states, *rows = (file[key] for key in sorted(file.files))
  return Departed(
    tuple(described),
    tuple(described.values()),
    has_state,
    client_states,
    tuple(rows),
  )


def write_departed(
  workdir: pathlib.Path,
  known: Sequence[str],
  departed: Departed,
  moves: Moves,
  rows: StoredRows,
  carrier: Carrier,
  keep: int,
) -> None:
  """Writes the states of known clients that are not in the population."""
  num_runs = np.array([0] * moves.num_old + list(departed.num_runs), int) + 1
  is_gone = np.ones(len(known), bool)
  is_gone[moves.origin[moves.origin >= 0]] = False
  gone = np.flatnonzero(is_gone & (num_runs <= keep))
  folder = workdir / checkpoint_lib.FOLDER / checkpoint_lib.DEPARTED
  if folder.exists():
    shutil.rmtree(folder)
  if not len(gone):
    return
  temporary = folder.with_name(
    f'{checkpoint_lib.TEMPORARY}_{checkpoint_lib.DEPARTED}'
  )
  durable.make_folder(temporary)
  has_state = rows.has_state()[gone]
  stored = [rows.row(one) for one in gone[has_state]]
  (temporary / _CLIENTS_FILE).write_text(
    json.dumps({known[one]: int(num_runs[one]) for one in gone}, indent=1)
  )
  client_states = np.stack(stored) if stored else np.zeros((0, 0), np.uint8)
  server_rows = [leaf[gone] for leaf in carrier.known_rows]
  checkpoint_lib.save_arrays(
    temporary / _STATES_FILE, [has_state, client_states, *server_rows]
  )
  durable.publish(temporary, folder)
