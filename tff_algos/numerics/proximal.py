"""Proximal terms of several centres, as one term around their mean.

sum_s u_s |w - c_s|^2 = U |w - c|^2 + a constant, with U = sum_s u_s and
c = sum_s u_s c_s / U. So S centres cost as much as one (FedSoft, Eqs. 4-5).
"""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.core.structures import Array, Leaf, Structure
from tff_algos.numerics import trees


class Pull(NamedTuple):
  """Several proximal terms combined into one.

  Attributes:
    center: Weighted mean of the centres, shaped like one centre.
    strength: U, float32 `[]`, >= 0.
  """

  center: Structure
  strength: Leaf


def joint_pull(pulls: tf.Tensor | Array, centers: Structure) -> Pull:
  """Returns the proximal term that equals a sum of several, up to a constant.

  Args:
    pulls: u, `[num_centers]`, >= 0; or `[points, num_centers]` for several
      points at once, which returns a stack.
    centers: Structure of tensors `[num_centers, ...]`.
  """
  return Pull(mixed_center(pulls, centers), tf.reduce_sum(pulls, axis=-1))


def mixed_center(pulls: tf.Tensor | Array, centers: Structure) -> Structure:
  """Returns sum_s u_s c_s / sum_s u_s; zeros where all u_s are 0.

  Args:
    pulls: As of `joint_pull`.
    centers: Structure of tensors `[num_centers, ...]`.
  """
  total = tf.reduce_sum(pulls, axis=-1, keepdims=True)
  return trees.mix(tf.math.divide_no_nan(pulls, total), centers)


def penalty(
  point: Structure, center: Structure, weight: tf.Tensor | float
) -> tf.Tensor:
  """Returns weight / 2 * |point - center|^2, float32 `[]`."""
  return 0.5 * weight * trees.squared_norm(trees.subtract(point, center))
