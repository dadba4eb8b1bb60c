"""A graph of likeness, kept as vectors whose inner products are its edges.

w_ij = <a_i, a_j>. So the matrix W is positive semidefinite, is never built, and
its product with n points costs n times the length of a vector. What a point
is to itself, w_ii, cancels in the Laplacian D - W, D the row sums of W.
"""

import tensorflow as tf


def cosine_features(histograms: tf.Tensor, is_shifted: bool) -> tf.Tensor:
  """Returns vectors whose inner products are the cosines of histograms.

  Args:
    histograms: `[n, bins]`, >= 0.
    is_shifted: Whether edges are 0.5 + 0.5 * cosine.

  Returns:
    `[n, bins]`, or `[n, bins + 1]`. A histogram of zeros has no edges.
  """
  # Twice, as the square of a tiny count is 0.
  largest = tf.reduce_max(histograms, axis=1, keepdims=True)
  scaled = tf.math.divide_no_nan(histograms, largest)
  norms = tf.norm(scaled, axis=1, keepdims=True)
  directions = tf.math.divide_no_nan(scaled, norms)
  if not is_shifted:
    return directions
  has_entries = tf.cast(largest > 0, directions.dtype)
  return 0.5**0.5 * tf.concat([directions, has_entries], axis=1)


def multiply(features: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns W @ values.

  Args:
    features: `[n, m]`.
    values: `[n, k]`.
  """
  return tf.matmul(features, tf.matmul(features, values, transpose_a=True))


def degrees(features: tf.Tensor) -> tf.Tensor:
  """Returns the row sums of W, `[n, 1]`, w_ii included.

  Args:
    features: `[n, m]`.
  """
  return tf.matmul(features, tf.reduce_sum(features, axis=0)[:, tf.newaxis])


def laplacian_product(features: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns (D - W) @ values, `[n, k]`; row i is sum_j w_ij (v_i - v_j).

  Args:
    features: `[n, m]`.
    values: `[n, k]`.
  """
  return degrees(features) * values - multiply(features, values)


def disagreement(features: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns 1/2 * sum_ij w_ij |v_i - v_j|^2, `[]`.

  Args:
    features: `[n, m]`.
    values: `[n, k]`.
  """
  return tf.reduce_sum(values * laplacian_product(features, values))
