"""Store of client states between rounds: in memory, or mostly on disk.

A client that never took part has no row: its initial state is computed on
demand. New states are staged while a round runs; `commit` keeps them for later
rounds, `discard` drops those of a failed round. A checkpoint writes the rows
that changed since the last one as a segment file, so its cost depends on the
number of changed rows, not on the population.

States stay in the stacked arrays in which they were staged: a recurring cohort
gets the same arrays back, without a copy of its models.
"""

import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import durable
from tff_algos.core.structures import Structure
from tff_algos.runtimes.pjrt import held_states

# Position of a client's state: (number of a stack, row).
_Place = tuple[int, int]

MEMORY = 'memory'
DISK = 'disk'


class StoreIndex(NamedTuple):
  """Positions of the clients' saved states.

  Attributes:
    segment: Round of the segment with the client's row, int32
      `[num_clients]`; 0 if the client has no saved state.
    position: Row in the segment, int32 `[num_clients]`.
  """

  segment: np.ndarray
  position: np.ndarray


class ClientStateStore:
  """The states of all clients of a population.

  Attributes:
    seed: Seed of the initial states, >= 0.
  """

  def __init__(
    self,
    initial_state: Callable[[int, int], Structure],
    num_clients: int,
    folder: str | os.PathLike[str],
    kind: str = MEMORY,
    seed: int = 0,
  ):
    """Makes an empty store.

    Args:
      initial_state: (client index, seed) -> the state of a client that never
        took part, NumPy; pure.
      num_clients: Size of the population.
      folder: Folder of the segments.
      kind: `'memory'` keeps every changed row in memory; `'disk'` keeps only
        those since the last save, for populations that do not fit.
      seed: Seed of the initial states, >= 0.
    """
    self._initial_state = initial_state
    self.seed = seed
    self._template = initial_state(0, seed)
    self._folder = pathlib.Path(folder)
    self._kind = kind
    self._index = StoreIndex(
      np.zeros(num_clients, np.int32), np.zeros(num_clients, np.int32)
    )
    self._stacks = _Stacks()
    self._committed: dict[int, _Place] = {}
    self._staged: dict[int, _Place] = {}
    self._unsaved: set[int] = set()
    self._segments: dict[int, list[np.ndarray]] = {}

  def load(self, client_indices: np.ndarray) -> Structure:
    """Returns the states of some clients, stacked `[n, ...]`, read-only.

    The leaves are NumPy arrays, or the staged tensors or `HeldLeaf`s.
    """
    clients = [int(index) for index in client_indices]
    places = [self._place(client) for client in clients]
    leaves = self._stacks.whole(places)
    if leaves is None:
      leaves = self._gather(clients, places)
    return tf.nest.pack_sequence_as(self._template, leaves)

  def has_state(self) -> np.ndarray:
    """Returns which clients have a stored state, bool `[num_clients]`.

    Clients that never took part in a phase with client states have none.
    """
    has_one = self._index.segment > 0
    has_one[[*self._committed, *self._staged]] = True
    return has_one

  def state_bytes(self) -> int:
    """Returns the size of a client's state."""
    return sum(leaf.nbytes for leaf in tf.nest.flatten(self._template))

  def stage(self, client_indices: np.ndarray, states: Structure) -> None:
    """Stages new states `[n, ...]`; `load` returns them at once.

    Args:
      client_indices: int32 `[n]`, distinct.
      states: NumPy arrays, tensors or `HeldLeaf`s, which must not change
        afterwards.
    """
    clients = [int(index) for index in client_indices]
    stack = self._stacks.add(tf.nest.flatten(states), len(clients))
    for row, client in enumerate(clients):
      self._put(self._staged, client, (stack, row))

  def commit(self) -> None:
    """Commits the staged states after a successful round."""
    for client, place in self._staged.items():
      self._put(self._committed, client, place)
    self._unsaved.update(self._staged)
    self._staged = {}
    if self._stacks.is_wasteful():
      self._compact()

  def discard(self) -> None:
    """Discards the staged states after a failed round."""
    for place in self._staged.values():
      self._stacks.release(place)
    self._staged = {}

  def write_segment(self, round_num: int) -> StoreIndex:
    """Writes the rows that changed since the last save; changes nothing else.

    Args:
      round_num: The last finished round, >= 1; names the segment.

    Returns:
      Index of all clients' rows; pass it to `mark_saved` when the checkpoint
      that refers to it is complete.

    Raises:
      DataError: If a folder stands in the place of the segment.
      OSError: If the segment cannot be written.
    """
    changed = sorted(self._unsaved)
    index = StoreIndex(self._index.segment.copy(), self._index.position.copy())
    states = (self._stacks.row(self._committed[one]) for one in changed)
    self._write(index, round_num, changed, map(self.encode, states))
    return index

  def import_rows(
    self,
    round_num: int,
    clients: Sequence[int],
    blocks: Iterable[np.ndarray],
  ) -> None:
    """Takes states of an earlier run, as its rows, into an empty store.

    Args:
      round_num: The last finished round of that run, >= 1; names the segment.
      clients: Clients of this store, distinct.
      blocks: Their rows, uint8 `[n, state bytes]`, in the same order.

    Raises:
      DataError: If a folder stands in the place of the segment.
      OSError: If the segment cannot be written.
    """
    self._write(self._index, round_num, clients, blocks)

  def row_type(self) -> list[str]:
    """Returns dtype and shape of each leaf of a client's state."""
    return [
      f'{leaf.dtype}{list(leaf.shape)}'
      for leaf in tf.nest.flatten(self._template)
    ]

  def encode(self, state: Structure) -> np.ndarray:
    """Returns the row of a state, uint8 `[state bytes]`."""
    values = tf.nest.flatten(state)
    return np.frombuffer(
      b''.join(np.asarray(value).tobytes() for value in values), np.uint8
    )

  def mark_saved(self, index: StoreIndex) -> None:
    """Marks a written index as the saved state of the store."""
    self._index = index
    self._unsaved = set()
    self._segments = {}
    if self._kind == DISK:
      for place in self._committed.values():
        self._stacks.release(place)
      self._committed = {}

  def restore(self, index: StoreIndex, *, maps_all: bool = False) -> None:
    """Restores the states of a saved index; discards later changes.

    Args:
      index: The index.
      maps_all: Whether to map all its segments at once, for a reader of a run
        whose training goes on and may remove their files; a segment stays open
        then.
    """
    self._index = StoreIndex(index.segment.copy(), index.position.copy())
    self._committed, self._staged = {}, {}
    needed = np.unique(index.segment[index.segment > 0]) if maps_all else ()
    self._segments = {int(one): self._open_segment(int(one)) for one in needed}
    self._stacks = _Stacks()
    self._unsaved = set()

  def segment_path(self, round_num: int) -> pathlib.Path:
    """Returns the file of the segment that `write_segment` writes."""
    return segment_path(self._folder, round_num)

  def _place(self, client: int) -> _Place | None:
    return self._staged.get(client) or self._committed.get(client)

  def _put(self, places: dict[int, _Place], client: int, place: _Place) -> None:
    old = places.get(client)
    places[client] = place
    if old is not None:
      self._stacks.release(old)

  def _gather(
    self, clients: list[int], places: list[_Place | None]
  ) -> list[Any]:
    """Returns the states of some clients, copied into new arrays.

    States that a runtime holds on its device are joined there.
    """
    rows = (self._row(*one) for one in zip(clients, places, strict=True))
    held = self._stacks.held(places)
    if held is not None:
      return held.join(list(rows))
    gathered = [
      np.empty((len(clients), *leaf.shape), leaf.dtype)
      for leaf in tf.nest.flatten(self._template)
    ]
    for i, (leaves, row) in enumerate(rows):
      for leaf, value in zip(gathered, leaves, strict=True):
        leaf[i] = np.asarray(value)[row]
    for leaf in gathered:
      leaf.flags.writeable = False
    return gathered

  def _row(
    self, client: int, place: _Place | None
  ) -> tuple[Sequence[Any], int]:
    """Returns the leaves of stacked states, and the row of a client."""
    if place is not None:
      return self._stacks.leaves(place), place[1]
    segment = int(self._index.segment[client])
    if segment == 0:
      state = tf.nest.flatten(self._initial_state(client, self.seed))
      return [np.asarray(leaf)[np.newaxis] for leaf in state], 0
    if segment not in self._segments:
      self._segments[segment] = self._open_segment(segment)
    return self._segments[segment], int(self._index.position[client])

  def _compact(self) -> None:
    """Copies the committed states into one stack; the others are freed."""
    clients = list(self._committed)
    leaves = self._gather(clients, [self._committed[one] for one in clients])
    self._stacks = _Stacks()
    stack = self._stacks.add(leaves, len(clients))
    self._committed = {one: (stack, row) for row, one in enumerate(clients)}

  def _write(
    self,
    index: StoreIndex,
    round_num: int,
    clients: Sequence[int],
    blocks: Iterable[np.ndarray],
  ) -> None:
    """Writes the rows of some clients as a segment, and their index entries.

    Args:
      index: Receives the places of the rows.
      round_num: Names the segment.
      clients: The clients, distinct; of none there is no segment.
      blocks: Their rows in this order, uint8, of any shape.
    """
    if not clients or not self.state_bytes():
      return
    durable.make_folder(self._folder)
    path = self.segment_path(round_num)
    durable.check_file_place(path)
    shape = (len(clients), self.state_bytes())
    header = {'descr': '|u1', 'fortran_order': False, 'shape': shape}
    # Not a mapped file, whose pages on a full disk kill the process.
    with open(path, 'wb') as file:
      np.lib.format.write_array_header_1_0(file, header)
      for block in blocks:
        file.write(block.data)
    durable.sync(path)
    durable.sync(self._folder)
    index.segment[clients] = round_num
    index.position[clients] = np.arange(len(clients))

  def _open_segment(self, round_num: int) -> list[np.ndarray]:
    """Returns the leaves `[rows, ...]` of a segment, mapped from its file."""
    encoded = np.load(self.segment_path(round_num), mmap_mode='r')
    leaves, start = [], 0
    for leaf in tf.nest.flatten(self._template):
      stop = start + leaf.nbytes
      leaves.append(
        encoded[:, start:stop].view(leaf.dtype).reshape(-1, *leaf.shape)
      )
      start = stop
    return leaves


def segment_path(folder: pathlib.Path, round_num: int) -> pathlib.Path:
  """Returns the file of a round's segment, rows uint8 `[n, state bytes]`."""
  return folder / f'round_{round_num:06d}.npy'


class _Stacks:
  """Stacks of staged states; a stack without live rows is freed."""

  def __init__(self):
    self._leaves: dict[int, list[Any]] = {}
    self._num_rows: dict[int, int] = {}
    self._num_live: dict[int, int] = {}
    self._next = 0

  def add(self, leaves: list[Any], num_rows: int) -> int:
    """Returns the number of a new stack, all of whose rows are live."""
    self._next += 1
    if num_rows:
      self._leaves[self._next] = [_read_only(leaf) for leaf in leaves]
      self._num_rows[self._next] = self._num_live[self._next] = num_rows
    return self._next

  def leaves(self, place: _Place) -> list[Any]:
    return self._leaves[place[0]]

  def row(self, place: _Place) -> list[np.ndarray]:
    return [np.asarray(leaf)[place[1]] for leaf in self.leaves(place)]

  def held(self, places: list[_Place | None]) -> held_states.HeldLeaf | None:
    """Returns a leaf that a runtime holds on its device, or None."""
    for place in places:
      for leaf in self.leaves(place)[:1] if place else ():
        if isinstance(leaf, held_states.HeldLeaf) and leaf.is_held:
          return leaf
    return None

  def whole(self, places: list[_Place | None]) -> list[Any] | None:
    """Returns the leaves of a stack if the places are all its rows in order."""
    if not places or places[0] is None:
      return None
    stack = places[0][0]
    rows = [(stack, row) for row in range(self._num_rows[stack])]
    return self._leaves[stack] if places == rows else None

  def release(self, place: _Place) -> None:
    """Counts a row as dead."""
    stack, _ = place
    self._num_live[stack] -= 1
    if not self._num_live[stack]:
      del self._leaves[stack], self._num_rows[stack], self._num_live[stack]

  def is_wasteful(self) -> bool:
    """Returns whether dead rows take more memory than live ones."""
    return sum(self._num_rows.values()) > 2 * sum(self._num_live.values())


def _read_only(leaf: Any) -> Any:
  if isinstance(leaf, tf.Tensor) and 'CPU' not in leaf.device:
    leaf = leaf.numpy()  # A GPU has no memory for the states of all clients.
  if isinstance(leaf, np.ndarray):
    leaf = leaf.view()
    leaf.flags.writeable = False
  return leaf
