"""Where client states live between rounds: in memory, or mostly on disk.

A client that never took part has no row: its initial state is computed when
asked for. New states are staged while a round runs and become visible to
later rounds by `commit`; a round that fails is forgotten by `discard`. A
checkpoint writes the rows that changed since the last one as a segment file,
so it costs what changed, not what exists.
"""

import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

Structure = Any

MEMORY = 'memory'
DISK = 'disk'


class StoreIndex(NamedTuple):
  """Where each client's saved state lies.

  Attributes:
    segment: Round whose segment holds the client's row, int32
      `[num_clients]`; 0 if the client has no saved state.
    position: Row in the segment, int32 `[num_clients]`.
  """

  segment: np.ndarray
  position: np.ndarray


class ClientStateStore:
  """The states of all clients of a population.

  Attributes:
    committed_round: The round of the last commit; None while a commit runs
      (Ctrl-C may fall into it) and before the first.
  """

  def __init__(
    self,
    initial_state: Callable[[int], Structure],
    num_clients: int,
    folder: str | os.PathLike[str],
    kind: str = MEMORY,
  ):
    """Makes an empty store.

    Args:
      initial_state: Client index -> the state of a client that never took
        part, NumPy; pure.
      num_clients: Size of the population.
      folder: Where segments are written.
      kind: `'memory'` keeps every changed row in memory; `'disk'` keeps only
        those since the last save, for populations that do not fit.
    """
    self._initial_state = initial_state
    self._template = initial_state(0)
    self._folder = pathlib.Path(folder)
    self._kind = kind
    self._index = StoreIndex(
      np.zeros(num_clients, np.int32), np.zeros(num_clients, np.int32)
    )
    self._rows: dict[int, np.ndarray] = {}
    self._unsaved: set[int] = set()
    self._staged: dict[int, np.ndarray] = {}
    self._segments: dict[int, np.ndarray] = {}
    self.committed_round: int | None = None

  def load(self, client_indices: np.ndarray) -> Structure:
    """Returns the states of some clients, stacked `[n, ...]`, NumPy."""
    rows = [self._decode(self._row(int(index))) for index in client_indices]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)

  def stage(self, client_indices: np.ndarray, states: Structure) -> None:
    """Takes new states `[n, ...]`; `load` sees them at once."""
    leaves = tf.nest.flatten(states)
    for row, index in enumerate(client_indices):
      parts = [np.ascontiguousarray(leaf[row]).tobytes() for leaf in leaves]
      self._staged[int(index)] = np.frombuffer(b''.join(parts), np.uint8)

  def commit(self, round_num: int) -> None:
    """Makes the staged states permanent: the round has succeeded."""
    self.committed_round = None
    self._rows.update(self._staged)
    self._unsaved.update(self._staged)
    self._staged = {}
    self.committed_round = round_num

  def discard(self) -> None:
    """Forgets the staged states: the round has failed."""
    self._staged = {}

  def write_segment(self, round_num: int) -> StoreIndex:
    """Writes the rows that changed since the last save; changes nothing else.

    Args:
      round_num: The last finished round, >= 1; names the segment.

    Returns:
      Where every client's row lies now; give it to `mark_saved` when the
      checkpoint that refers to it is whole.

    Raises:
      OSError: If the segment cannot be written.
    """
    changed = sorted(self._unsaved)
    index = StoreIndex(self._index.segment.copy(), self._index.position.copy())
    if changed and self._row_bytes():
      self._folder.mkdir(parents=True, exist_ok=True)
      with open(self.segment_path(round_num), 'wb') as file:
        np.save(file, np.stack([self._rows[client] for client in changed]))
        file.flush()
        os.fsync(file.fileno())
      index.segment[changed] = round_num
      index.position[changed] = np.arange(len(changed))
    return index

  def mark_saved(self, index: StoreIndex) -> None:
    """Takes a written index as the saved state of the store."""
    self._index = index
    self._unsaved = set()
    self._segments = {}
    if self._kind == DISK:
      self._rows = {}

  def restore(self, index: StoreIndex) -> None:
    """Goes back to a saved index; forgets everything since."""
    self._index = StoreIndex(index.segment.copy(), index.position.copy())
    self._rows, self._staged, self._segments = {}, {}, {}
    self._unsaved = set()

  def segment_path(self, round_num: int) -> pathlib.Path:
    """Returns the file of the segment that `save(round_num)` writes."""
    return self._folder / f'round_{round_num:06d}.npy'

  def _row(self, client_index: int) -> np.ndarray | None:
    for rows in (self._staged, self._rows):
      if client_index in rows:
        return rows[client_index]
    segment = int(self._index.segment[client_index])
    if segment == 0:
      return self._encode(self._initial_state(client_index))
    if segment not in self._segments:
      self._segments[segment] = np.load(
        self.segment_path(segment), mmap_mode='r'
      )
    return self._segments[segment][self._index.position[client_index]]

  def _row_bytes(self) -> int:
    return sum(leaf.nbytes for leaf in tf.nest.flatten(self._template))

  def _encode(self, state: Structure) -> np.ndarray:
    leaves = tf.nest.flatten(state)
    return np.frombuffer(b''.join(leaf.tobytes() for leaf in leaves), np.uint8)

  def _decode(self, row: np.ndarray) -> Structure:
    data, offset, leaves = row.tobytes(), 0, []
    for leaf in tf.nest.flatten(self._template):
      leaves.append(
        np.frombuffer(data, leaf.dtype, leaf.size, offset).reshape(leaf.shape)
      )
      offset += leaf.nbytes
    return tf.nest.pack_sequence_as(self._template, leaves)
