"""Mergeable statistics: sums and weights that merge by addition."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core.structures import Array


class MeanStat(NamedTuple):
  """A mean as total and weight; statistics merge by sums, zeros are neutral.

  Attributes:
    total: Weighted sum of the values, float32 `[...]`.
    weight: Sum of the weights, float32 `[...]`, >= 0.
  """

  total: tf.Tensor
  weight: tf.Tensor


def empty_mean() -> MeanStat:
  """Returns the statistic of no values, of shape `[]`."""
  return MeanStat(tf.constant(0.0), tf.constant(0.0))


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> MeanStat:
  """Returns the statistic of weighted values.

  Args:
    values: `[..., n]` float32; one of weight 0 may be NaN.
    weights: `[n]` float32, >= 0, such as a mask.

  Returns:
    A MeanStat of shape `[...]`.
  """
  kept = tf.where(weights > 0, weights * values, tf.zeros_like(values))
  if len(values.shape) > 1:
    weights = tf.broadcast_to(weights, tf.shape(values))
  return MeanStat(tf.reduce_sum(kept, axis=-1), tf.reduce_sum(weights, axis=-1))


def value_of(stat: MeanStat) -> Array:
  """Returns total / weight as float64; NaN where nothing was counted."""
  total = np.asarray(stat.total, np.float64)
  weight = np.asarray(stat.weight, np.float64)
  counted = weight > 0
  return np.where(counted, total / np.where(counted, weight, 1.0), np.nan)
