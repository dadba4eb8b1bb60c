"""Client data with flipped labels (label-flipping attack)."""

import tensorflow as tf

from tff_algos.core import algorithm


class FlippedData:
  """Examples with labels num_classes - 1 - y; used as `ClientData`.

  Attributes:
    x: Features, `[capacity, ...]`.
    y: True labels of the client, `[capacity]`.
    mask: 1 for a real example and 0 for padding, `[capacity]`.
  """

  def __init__(
    self, data: algorithm.ClientData, is_flipped: tf.Tensor, num_classes: int
  ):
    """Wraps the examples without reading them.

    Args:
      data: The examples, as passed by the runtime.
      is_flipped: Whether labels are flipped, bool `[]`.
      num_classes: Number of classes.
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
    """Returns the labels, flipped if `is_flipped`."""
    return self._flip(self._data.y)

  def take(self, positions: tf.Tensor, mask: tf.Tensor) -> algorithm.ClientData:
    """Returns some rows, see `ClientData.take`."""
    batch = self._data.take(positions, mask)
    return algorithm.ClientData(batch.x, self._flip(batch.y), batch.mask)

  def _flip(self, y: tf.Tensor) -> tf.Tensor:
    return tf.where(self._is_flipped, self._num_classes - 1 - y, y)
