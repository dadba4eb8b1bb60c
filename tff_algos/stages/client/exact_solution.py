"""Exact local solver: minimum of a quadratic objective, for small models.

One Newton step: the gradient and the Hessian, column by column as its products
with unit vectors, make a linear system. Its solution is the exact local
solution assumed by theory, and the limit of gradient descent.
"""

import tensorflow as tf

from tff_algos.core import algorithm, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees
from tff_algos.stages.client import gradients, objectives

MAX_PARAMETERS = 512
# Curvatures below this share of the largest are treated as rounding errors.
_FLAT = 1e-6


def solve(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
) -> tuple[Structure, statistics.MeanStat]:
  """Minimises a convex quadratic objective on one client's examples.

  Exact, up to the rounding of float32, for the squared error of a model that
  is linear in its weights, with or without a proximal term. Any other
  objective gets one Newton step, which need not be a minimum. The weights stay
  at the start along directions whose curvature, proximal term included, is
  below 1e-6 of the largest: float32 does not resolve them, so scale features
  alike.

  Args:
    objective: Objective to minimise, on all examples at once.
    weights: Starting point; among several minima, the nearest is returned.
    data: The client's examples.

  Returns:
    The solution, and the mean loss of the examples at the starting point. For a
    client without examples, the starting point itself (with a proximal
    objective, the centre).

  Raises:
    ConfigError: If the model has more than `MAX_PARAMETERS` parameters.
  """
  num_parameters = trees.num_entries(weights)
  if num_parameters > MAX_PARAMETERS:
    raise errors.ConfigError(
      f"solver 'exact' is for models of at most {MAX_PARAMETERS} parameters "
      f'(it solves for all at once), but the model has {num_parameters}; use '
      "solver 'descent'"
    )

  # Gathered once for all columns.
  everything = data.take(tf.range(tf.shape(data.mask)[0]), data.mask)
  slope, losses = gradients.gradient(objective, weights, everything)

  def add_column(i, matrix):
    unit = tf.one_hot(i, num_parameters)
    column = gradients.hessian_product(
      objective, weights, everything, trees.unflatten(unit, weights)
    )
    return i + 1, matrix + trees.flatten(column)[:, tf.newaxis] * unit

  _, matrix = tf.while_loop(
    lambda i, _: i < num_parameters,
    add_column,
    (tf.constant(0), tf.zeros([num_parameters, num_parameters])),
    parallel_iterations=1,
  )
  step = _least_step(matrix, -trees.flatten(slope))
  solution = trees.add(weights, trees.unflatten(step, weights))
  return solution, statistics.weighted_mean(losses, data.mask)


def _least_step(matrix: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
  """Returns the shortest solution of matrix @ step = slope; NaN makes NaN."""
  # The decomposition of a NaN matrix would end the whole run, not one client.
  is_finite = trees.all_finite((matrix, slope))
  sane = tf.where(is_finite, (matrix + tf.transpose(matrix)) / 2, 0.0)
  curvatures, directions = tf.linalg.eigh(sane)
  smallest = _FLAT * tf.reduce_max(tf.abs(curvatures))
  inverses = tf.where(
    curvatures > smallest, tf.math.reciprocal_no_nan(curvatures), 0.0
  )
  along = inverses * tf.linalg.matvec(directions, slope, transpose_a=True)
  step = tf.linalg.matvec(directions, along)
  return tf.where(is_finite, step, float('nan'))
