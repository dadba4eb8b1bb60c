"""Coordinate-wise robust means of rows: trimmed mean, median and the like.

Only real rows enter a mean; other rows are ignored. Without a real row the
means are undefined.
"""

import tensorflow as tf

from tff_algos.core.structures import Structure
from tff_algos.numerics import trees


def trimmed_mean(
  rows: Structure, is_real: tf.Tensor, num_trimmed: tf.Tensor
) -> Structure:
  """Returns the mean without the largest and the smallest values.

  Yin et al. 2018, arXiv:1803.01498, Definition 2.

  Args:
    rows: Structure of float tensors `[rows, ...]`.
    is_real: bool `[rows]`.
    num_trimmed: How many are left out on each side, int32 `[]`, >= 0. If none
      would remain, the result is the median.

  Returns:
    Structure of tensors `[...]`.
  """
  num_real = tf.reduce_sum(tf.cast(is_real, tf.int32))
  trimmed = tf.clip_by_value(num_trimmed, 0, tf.maximum(num_real - 1, 0) // 2)
  ranks = tf.range(tf.shape(is_real)[0])
  is_kept = (ranks >= trimmed) & (ranks < num_real - trimmed)
  num_kept = num_real - 2 * trimmed

  def trim(leaf: tf.Tensor) -> tf.Tensor:
    ascending = tf.sort(_real_or_infinite(leaf, is_real), axis=0)
    kept = tf.where(
      trees.along_rows(is_kept, leaf), ascending, tf.zeros_like(leaf)
    )
    # Divided first: the sum of two large values may be infinite.
    return tf.reduce_sum(kept / tf.cast(num_kept, leaf.dtype), axis=0)

  return tf.nest.map_structure(trim, rows)


def median(rows: Structure, is_real: tf.Tensor) -> Structure:
  """Returns the median, the mean of both middle values of an even number.

  Yin et al. 2018, arXiv:1803.01498, Definition 1.

  Args:
    rows: Structure of float tensors `[rows, ...]`.
    is_real: bool `[rows]`.
  """
  return trimmed_mean(rows, is_real, tf.shape(is_real)[0])


def mean_around_median(
  rows: Structure, is_real: tf.Tensor, num_kept: tf.Tensor
) -> Structure:
  """Returns the mean of the values that are nearest to the median.

  The second step of Bulyan, El Mhamdi et al. 2018, arXiv:1802.07927.

  Args:
    rows: Structure of float tensors `[rows, ...]`.
    is_real: bool `[rows]`.
    num_kept: How many values, int32 `[]`, from 1 to the number of real rows.
      Of two equally near ones the row that comes first is taken.
  """
  is_kept = tf.range(tf.shape(is_real)[0]) < num_kept

  def around(leaf: tf.Tensor, middle: tf.Tensor) -> tf.Tensor:
    gaps = _real_or_infinite(tf.abs(leaf - middle), is_real)
    columns, gaps = (
      tf.transpose(tf.reshape(one, [tf.shape(leaf)[0], -1]))
      for one in (leaf, gaps)
    )
    order = tf.argsort(gaps, axis=1, stable=True)
    nearest = tf.gather(columns, order, batch_dims=1)
    kept = tf.where(is_kept, nearest, tf.zeros_like(nearest))
    mean = tf.reduce_sum(kept / tf.cast(num_kept, leaf.dtype), axis=1)
    return tf.reshape(mean, tf.shape(middle))

  return tf.nest.map_structure(around, rows, median(rows, is_real))


def _real_or_infinite(leaf: tf.Tensor, is_real: tf.Tensor) -> tf.Tensor:
  """Returns the leaf with infinity in place of rows that are not real."""
  return tf.where(trees.along_rows(is_real, leaf), leaf, float('inf'))
