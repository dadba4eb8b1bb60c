"""Gram matrices: inner products between models as flat vectors.

There are far fewer models than weights in a model, so comparisons of models
(k-means, mean distances) are computed on this small matrix. Models of one round
differ by little: the mean is subtracted first, and products are summed in
float64, else |a|^2 - 2 <a, b> + |b|^2 would cancel to noise.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core.structures import Structure

# Columns that are converted to float64 at a time, to bound the memory.
_BLOCK = 1 << 15
# Squared distances below this share of the squared norms that they come from
# are rounding.
_ROUNDING = 1e-13


class MeanDistances(NamedTuple):
  """Mean Euclidean distances between rows, float64 `[]`; NaN without a pair.

  Attributes:
    overall: Over all pairs.
    within: Over the pairs of one cluster.
    between: Over the pairs of two clusters.
  """

  overall: tf.Tensor
  within: tf.Tensor
  between: tf.Tensor


def centered_gram(stacks: Sequence[Structure], counts: tf.Tensor) -> tf.Tensor:
  """Returns the inner products of rows, centered by the mean of counted rows.

  Takes O(rows^2 d) for d weights a row. Besides its arguments it holds the
  result and some columns in float64.

  Args:
    stacks: Structures of float tensors `[rows_i, ...]`, which are concatenated
      along the rows. All other dimensions are static and equal.
    counts: 1 for a row that counts in the mean, else 0; float64 `[rows]`.

  Returns:
    float64 `[rows, rows]`.
  """
  num_rows = tf.shape(counts)[0]
  num_counted = tf.maximum(tf.reduce_sum(counts), 1.0)
  total = tf.zeros([num_rows, num_rows], tf.float64)
  for leaves in zip(*map(tf.nest.flatten, stacks), strict=True):

    def add_block(
      start: tf.Tensor,
      total: tf.Tensor,
      leaves: tuple[tf.Tensor, ...] = leaves,
    ) -> tuple[tf.Tensor, tf.Tensor]:
      rows = _columns(leaves, start)
      # Divided last: the mean of equal rows is then exactly that row.
      rows -= tf.linalg.matvec(rows, counts, transpose_a=True) / num_counted
      return start + _BLOCK, total + tf.matmul(rows, rows, transpose_b=True)

    size = _width(leaves[0])
    _, total = tf.while_loop(
      lambda start, _, size=size: start < size,
      add_block,
      (tf.constant(0), total),
      shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None])),
      parallel_iterations=1,
    )
  return tf.ensure_shape(total, [counts.shape[0]] * 2)


def _width(leaf: tf.Tensor) -> int:
  """Returns how many columns a stacked leaf has."""
  return tf.TensorShape(leaf.shape)[1:].num_elements()


def _columns(leaves: Sequence[tf.Tensor], start: tf.Tensor) -> tf.Tensor:
  """Returns up to `_BLOCK` columns of stacked leaves, float64 `[rows, n]`."""
  flat = [tf.reshape(leaf, [-1, _width(leaf)]) for leaf in leaves]
  return tf.concat(
    [tf.cast(one[:, start : start + _BLOCK], tf.float64) for one in flat], 0
  )


def squared_distances(gram: tf.Tensor, combinations: tf.Tensor) -> tf.Tensor:
  """Returns the squared distance of every row to combinations of rows.

  Args:
    gram: float64 `[rows, rows]`.
    combinations: Weights of the rows, float64 `[points, rows]`: a one-hot row
      is that row, 1/n for n rows their mean.

  Returns:
    float64 `[rows, points]`, >= 0; exactly 0 where it would be rounding only.
  """
  norms = tf.linalg.diag_part(gram)
  inner = tf.matmul(gram, combinations, transpose_b=True)
  point_norms = tf.reduce_sum(combinations * tf.transpose(inner), axis=1)
  distances = norms[:, tf.newaxis] - 2 * inner + point_norms
  # The bound uses only the rows of each pair: the rounding error of one huge
  # row must not zero the distances between other rows.
  terms = tf.linalg.matvec(tf.abs(combinations), tf.sqrt(norms)) ** 2
  is_rounding = distances <= _ROUNDING * tf.maximum(norms[:, tf.newaxis], terms)
  return tf.where(is_rounding, tf.zeros_like(distances), distances)


def mean_distances(
  gram: tf.Tensor, assignment: tf.Tensor, is_real: tf.Tensor
) -> MeanDistances:
  """Returns mean distances over the pairs of different rows.

  Args:
    gram: float64 `[rows, rows]`.
    assignment: Cluster of each row, int32 `[rows]`.
    is_real: bool `[rows]`; others are in no pair.
  """
  identity = tf.eye(tf.shape(gram)[0], dtype=tf.float64)
  distances = tf.sqrt(squared_distances(gram, identity))
  is_pair = is_real[:, tf.newaxis] & is_real & tf.equal(identity, 0)
  is_same = tf.equal(assignment[:, tf.newaxis], assignment)

  def mean(chosen: tf.Tensor) -> tf.Tensor:
    chosen = tf.cast(chosen, tf.float64)
    return tf.reduce_sum(chosen * distances) / tf.reduce_sum(chosen)

  return MeanDistances(
    mean(is_pair),
    mean(is_pair & is_same),
    mean(is_pair & tf.logical_not(is_same)),
  )


def cosines(gram: tf.Tensor) -> tf.Tensor:
  """Returns cosine similarities from inner products; 0 beside a zero vector.

  Args:
    gram: float64 `[rows, rows]`.
  """
  norms = tf.sqrt(tf.linalg.diag_part(gram))
  return tf.math.divide_no_nan(gram, norms[:, tf.newaxis] * norms)
