"""Client states that stay on the device between phase calls.

A stack is what the worker holds of one block of clients. Its leaves look like
arrays: NumPy fetches a stack once, for a checkpoint, say; a phase call passes
its name. A stack is dropped from the device with its last leaf.
"""

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
  from tff_algos.runtimes.pjrt import pjrt_connection


class Stack:
  """Client states on the device.

  Attributes:
    holder: The connection to the worker.
    name: Its name at the worker.
    size: Rows, of which the first are those of clients.
  """

  def __init__(
    self,
    holder: 'pjrt_connection.Connection',
    name: str,
    size: int,
    types: Sequence[tuple[str, list[int]]],
  ):
    """Takes over a stack that the worker has or will have.

    Args:
      holder: The connection to the worker.
      name: Its name at the worker.
      size: Rows.
      types: Dtype and shape of each leaf of one client.
    """
    self.holder = holder
    self.name = name
    self.size = size
    self.types = types
    self._fetched: list[np.ndarray] | None = None
    weakref.finalize(self, holder.forget, name).atexit = False

  def leaves(self, num_rows: int) -> list['HeldLeaf']:
    """Returns its leaves, of the first rows."""
    return [HeldLeaf(self, i, num_rows) for i in range(len(self.types))]

  def fetch(self) -> list[np.ndarray]:
    """Returns all rows of its leaves, fetched at the first call."""
    if self._fetched is None:
      # A copy: an array that crossed keeps a file descriptor open.
      self._fetched = [np.array(one) for one in self.holder.fetch(self.name)]
    return self._fetched


class HeldLeaf:
  """One leaf of a stack, `[rows, ...]`."""

  def __init__(self, stack: Stack, number: int, num_rows: int):
    """Takes a stack, the number of the leaf, and how many rows it has."""
    self.stack = stack
    self._number = number
    dtype, shape = stack.types[number]
    self.dtype = np.dtype(dtype)
    self.shape = (num_rows, *shape)

  @property
  def is_held(self) -> bool:
    """Returns whether the worker has it; once it has ended, NumPy alone."""
    return self.stack.holder.is_open

  def __array__(
    self, dtype: Any = None, copy: bool | None = None
  ) -> np.ndarray:
    array = self.stack.fetch()[self._number][: self.shape[0]]
    return np.array(array, dtype) if copy else np.asarray(array, dtype)

  def __getitem__(self, key: Any) -> Any:
    return np.asarray(self)[key]

  def __len__(self) -> int:
    return self.shape[0]

  def join(self, rows: Sequence[tuple[Sequence[Any], int]]) -> list['HeldLeaf']:
    """Returns the leaves of a stack of single rows, without fetching them.

    Args:
      rows: As of `gather`.
    """
    stack = gather(self.stack.holder, self.stack.types, rows, len(rows))
    return stack.leaves(len(rows))


def gather(
  holder: 'pjrt_connection.Connection',
  types: Sequence[tuple[str, list[int]]],
  rows: Sequence[tuple[Sequence[Any], int]],
  size: int,
) -> Stack:
  """Makes a stack of single rows of other stacks and of arrays.

  Args:
    holder: The connection to the worker.
    types: As of `Stack`.
    rows: Leaves, of a stack or arrays, and a row of them.
    size: Rows of the stack, >= len(rows); zeros beyond.
  """
  pieces: dict[str, tuple[list[int], list[int]]] = {}
  sent: list[list[np.ndarray]] = []
  for place, (leaves, row) in enumerate(rows):
    first = leaves[0]
    if isinstance(first, HeldLeaf) and first.stack.holder is holder:
      name = first.stack.name
    else:
      sent.append([np.asarray(leaf)[row] for leaf in leaves])
      name, row = '', len(sent) - 1
    taken, places = pieces.setdefault(name, ([], []))
    taken.append(row)
    places.append(place)
  return holder.stack(
    types,
    size,
    [(name, *piece) for name, piece in pieces.items()],
    [np.stack(column) for column in zip(*sent, strict=True)],
  )
