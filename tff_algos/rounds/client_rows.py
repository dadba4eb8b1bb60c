"""Examples of a client as a range of rows of a tensor of many clients."""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Leaf


class Rows(NamedTuple):
  """Concatenated examples of some clients.

  Attributes:
    x: `[rows, ...]`, float32 or int32 ids of tokens; the last row is zeros, and
      belongs to no client.
    y: `[rows, ...]`.
  """

  x: tf.Tensor
  y: tf.Tensor


class Span(NamedTuple):
  """Range of a client's examples in `Rows`.

  Attributes:
    start: First row, int32 `[]`; a client without examples points at the row
      of zeros.
    size: Number of rows, int32 `[]`, >= 0.
  """

  start: Leaf
  size: Leaf


# The type of a `Span`.
SPAN = Span(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32))


class SpanData:
  """A client's examples in `Rows`, with the interface of `ClientData`.

  Attributes:
    mask: 1 for a real example and 0 for padding, `[capacity]`, float32.
  """

  def __init__(self, rows: Rows, span: Span, places: tf.Tensor):
    """Reads no rows yet.

    Args:
      rows: Rows of all clients.
      span: Span of this client.
      places: 0 ... capacity - 1, int32, where capacity is the number of rows
        after padding; padding repeats a row.
    """
    self._rows = rows
    self.mask = tf.cast(places < span.size, tf.float32)
    last = tf.maximum(span.size, 1) - 1
    self._positions = span.start + tf.minimum(places, last)

  @property
  def x(self) -> tf.Tensor:
    """Returns the features, padded, `[capacity, ...]`."""
    return tf.gather(self._rows.x, self._positions)

  @property
  def y(self) -> tf.Tensor:
    """Returns the labels, padded, `[capacity, ...]`."""
    return tf.gather(self._rows.y, self._positions)

  def take(
    self, positions: tf.Tensor, mask: tf.Tensor
  ) -> algorithm_lib.ClientData:
    """Returns some rows, see `ClientData.take`."""
    chosen = tf.gather(self._positions, positions)
    return algorithm_lib.ClientData(
      tf.gather(self._rows.x, chosen), tf.gather(self._rows.y, chosen), mask
    )
