"""A client's examples with false labels."""

import tensorflow as tf

from tff_algos.core import algorithm


class FlippedData:
  """Examples of class y that say num_classes - 1 - y; used as `ClientData`.

  Attributes:
    x: Features, `[capacity, ...]`.
    y: Labels as the client has them, `[capacity]`.
    mask: 1 for a real example and 0 for padding, `[capacity]`.
  """

  def __init__(
    self, data: algorithm.ClientData, is_flipped: tf.Tensor, num_classes: int
  ):
    """Reads nothing.

    Args:
      data: The examples, whatever a runtime gives.
      is_flipped: Whether labels are false, bool `[]`.
      num_classes: Of the labels.
    """
    self._data = data
    self._is_flipped = is_flipped
    self._num_classes = num_classes
    self.mask = data.mask

  @property
  def x(self) -> tf.Tensor:
    """Returns the features."""
    return self._data.x

  @property
  def y(self) -> tf.Tensor:
    """Returns the labels, false if they are flipped."""
    return self._flip(self._data.y)

  def take(self, positions: tf.Tensor, mask: tf.Tensor) -> algorithm.ClientData:
    """Returns some rows, see `ClientData.take`."""
    batch = self._data.take(positions, mask)
    return algorithm.ClientData(batch.x, self._flip(batch.y), batch.mask)

  def _flip(self, y: tf.Tensor) -> tf.Tensor:
    return tf.where(self._is_flipped, self._num_classes - 1 - y, y)
