"""The pull of several centres on one point, as the pull of their mean.

sum_s u_s |w - c_s|^2 = U |w - c|^2 + a constant, with U = sum_s u_s and
c = sum_s u_s c_s / U. So S centres cost as much as one (FedSoft, Eqs. 4-5).
"""

from typing import Any

import tensorflow as tf

from tff_algos.numerics import trees

Structure = Any


def mixed_center(pulls: tf.Tensor, centers: Structure) -> Structure:
  """Returns sum_s u_s c_s / sum_s u_s.

  Args:
    pulls: u, `[num_centers]`, >= 0 with a positive sum.
    centers: Structure of tensors `[num_centers, ...]`.
  """
  return trees.mix(pulls / tf.reduce_sum(pulls), centers)


def penalty(
  point: Structure, center: Structure, weight: tf.Tensor | float
) -> tf.Tensor:
  """Returns weight / 2 * |point - center|^2, float32 `[]`."""
  return 0.5 * weight * trees.squared_norm(trees.subtract(point, center))
