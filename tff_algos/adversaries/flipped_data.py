"""Client data with flipped labels (label-flipping attack)."""

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib


class FlippedData:
  """Examples with labels in reverse order of the classes; a `ClientData`.

  Label y becomes num_classes - 1 - y. The label of padded places is no class:
  it stays, and the classes are those without it.

  Attributes:
    x: Features, `[capacity, ...]`.
    y: Labels, `[capacity, *label_shape]`.
    mask: 1 for a real example and 0 for padding, `[capacity]`.
  """

  def __init__(
    self,
    data: algorithm.ClientData,
    is_flipped: tf.Tensor,
    model: model_lib.Model,
  ):
    """Wraps the examples without reading them.

    Args:
      data: The examples, as passed by the runtime.
      is_flipped: Whether labels are flipped, bool `[]`.
      model: The model of these labels.
    """
    self._data = data
    self._is_flipped = is_flipped
    self._model = model
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
    last, padding = self._model.num_outputs - 1, self._model.padding_label
    if padding is None:
      flipped = last - y
    else:
      # The rank among the other classes is reversed.
      reverse = last - 1 - (y - tf.cast(y > padding, y.dtype))
      other = reverse + tf.cast(reverse >= padding, y.dtype)
      flipped = tf.where(tf.equal(y, padding), y, other)
    return tf.where(self._is_flipped, flipped, y)
