"""Examples of all clients as rows of one tensor, without padding.

A client is a range of rows. A step of local training gathers its batch from the
common tensor, which is the only copy of examples in training. If a split is
small enough, its rows stay on the device between rounds; otherwise the rows of
a few clients at a time are concatenated.
"""

import itertools
import math
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.numerics import trees
from tff_algos.rounds.client_rows import Rows, Span
from tff_algos.runtimes import cohort as cohort_lib

# Alignment of a tensor's memory, in bytes.
_ALIGNMENT = 64
# Smallest share of the population in a round for the split to stay resident:
# one in twenty. Otherwise a round's cost would depend on the population's size.
_SMALLEST_SHARE = 20


def concatenate(clients: Sequence[schema.Examples]) -> tuple[Rows, Span]:
  """Returns the concatenated rows of some clients, and their spans.

  Args:
    clients: At least one client's examples; a client may have none.

  Returns:
    Rows of tensors, and a span of int32 arrays `[clients]`.
  """
  sizes = np.asarray([len(one.y) for one in clients], np.int32)
  return _fill(iter(clients), sizes)


def read(source: cohort_lib.ClientSource) -> tuple[Rows, Span]:
  """Returns the rows of all clients of a split, read one client at a time.

  Returns:
    As of `concatenate`.

  Raises:
    DataError: If a record is damaged.
  """
  sizes = source.population.num_examples.astype(np.int32)
  return _fill(source.stream(), sizes)


def _fill(
  clients: Iterator[schema.Examples], sizes: np.ndarray
) -> tuple[Rows, Span]:
  """Returns the rows of clients of these sizes, read one at a time."""
  total = int(sizes.sum())
  starts = np.where(sizes, np.cumsum(sizes) - sizes, total).astype(np.int32)
  first = next(clients)
  x = _zeros((total + 1, *first.x.shape[1:]), first.x.dtype)
  y = _zeros((total + 1, *first.y.shape[1:]), first.y.dtype)
  everyone = itertools.chain([first], clients)
  for one, start, size in zip(everyone, starts, sizes, strict=True):
    for name, rows, known in (('x', one.x, x), ('y', one.y, y)):
      if (rows.dtype, rows.shape[1:]) != (known.dtype, known.shape[1:]):
        raise errors.DataError(
          f'{name} of a client is {rows.dtype} {rows.shape[1:]} an example, '
          f'but that of the first one {known.dtype} {known.shape[1:]}; give '
          'all clients examples alike'
        )
    x[start : start + size] = one.x
    y[start : start + size] = one.y
  return Rows(_share(x), _share(y)), Span(starts, sizes)


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
  """Returns zeros in memory that is aligned for TensorFlow's tensors."""
  num_bytes = math.prod(shape) * dtype.itemsize
  raw = np.zeros(num_bytes + _ALIGNMENT, np.uint8)
  start = -raw.ctypes.data % _ALIGNMENT
  return raw[start : start + num_bytes].view(dtype).reshape(shape)


def _share(array: np.ndarray) -> tf.Tensor:
  """Returns a tensor that shares an array's memory; the array is then fixed."""
  return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def worth_keeping(cohort: cohort_lib.Cohort) -> bool:
  """Returns whether a phase call reads enough clients to keep the split."""
  return cohort.size * _SMALLEST_SHARE >= cohort.source.population.num_clients


class ResidentRows:
  """Rows of the splits that are resident on the devices."""

  def __init__(self):
    """Keeps nothing yet."""
    self._spans: weakref.WeakKeyDictionary[cohort_lib.ClientSource, Span] = (
      weakref.WeakKeyDictionary()
    )
    self._rows: weakref.WeakKeyDictionary[
      cohort_lib.ClientSource, dict[str, Rows]
    ] = weakref.WeakKeyDictionary()

  def load(
    self,
    source: cohort_lib.ClientSource,
    client_indices: np.ndarray,
    device: str,
  ) -> tuple[Rows, Span]:
    """Returns the rows of a split on a device, and spans of some clients.

    Reads the split at the first call for it.

    Args:
      source: The split.
      client_indices: int32 `[clients]`.
      device: Device name for `tf.device`.

    Returns:
      All rows of the split, and spans of int32 arrays `[clients]`.
    """
    if source not in self._rows:
      rows, self._spans[source] = read(source)
      self._rows[source] = {'CPU:0': rows}
    by_device = self._rows[source]
    if device not in by_device:
      with tf.device(device):
        copied = (tf.identity(leaf) for leaf in next(iter(by_device.values())))
        by_device[device] = Rows(*copied)
    spans = self._spans[source]
    return by_device[device], Span(*(leaf[client_indices] for leaf in spans))

  def make_room(
    self, source: cohort_lib.ClientSource | None, num_bytes: int
  ) -> None:
    """Forgets splits, first those read first, until the others fit.

    Args:
      source: A split that stays, and is not counted.
      num_bytes: Memory limit of the others on a device.
    """
    others = [one for one in self._rows if one is not source]
    while sum(map(self._num_bytes, others)) > num_bytes:
      forgotten = others.pop(0)
      del self._rows[forgotten], self._spans[forgotten]

  def _num_bytes(self, source: cohort_lib.ClientSource) -> int:
    return trees.num_bytes(next(iter(self._rows[source].values())))

  def clear(self) -> None:
    """Forgets all rows."""
    self._spans.clear()
    self._rows.clear()
