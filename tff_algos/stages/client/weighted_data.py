"""A client's examples, each with weights of its own."""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm


class WeightedData(NamedTuple):
  """Examples and their weights; has what `ClientData` has.

  Local training shuffles and gathers examples, and their weights with them.

  Attributes:
    data: The examples, whatever a runtime gives.
    weights: `[capacity, ...]` float32; what padding has means nothing.
  """

  data: algorithm.ClientData
  weights: tf.Tensor

  @property
  def x(self) -> tf.Tensor:
    """Returns the features, `[capacity, ...]`."""
    return self.data.x

  @property
  def y(self) -> tf.Tensor:
    """Returns the labels, `[capacity]`."""
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

    For rows that `take` returned.
    """
    return self._replace(data=self.data.with_x(x))
