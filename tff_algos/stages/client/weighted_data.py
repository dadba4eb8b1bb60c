"""Client data with example weights."""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm


class WeightedData(NamedTuple):
  """Examples and their weights, with the interface of `ClientData`.

  Local training shuffles and gathers the weights along with the examples.

  Attributes:
    data: The examples, as passed by the runtime.
    weights: `[capacity, ...]` float32; weights of padding are ignored.
  """

  data: algorithm.ClientData
  weights: tf.Tensor

  @property
  def x(self) -> tf.Tensor:
    """Returns the features, `[capacity, ...]`."""
    return self.data.x

  @property
  def y(self) -> tf.Tensor:
    """Returns the labels, `[capacity, *label_shape]`."""
    return self.data.y

  @property
  def mask(self) -> tf.Tensor:
    """Returns 1 for a real example and 0 for padding, `[capacity]`."""
    return self.data.mask

  def take(self, positions: tf.Tensor, mask: tf.Tensor) -> 'WeightedData':
    """Returns some rows and their weights, see `ClientData.take`."""
    return WeightedData(
      self.data.take(positions, mask), tf.gather(self.weights, positions)
    )

  def with_x(self, x: tf.Tensor) -> 'WeightedData':
    """Returns the same examples with other features, see `ClientData.with_x`.

    Applies to results of `take`.
    """
    return self._replace(data=self.data.with_x(x))
