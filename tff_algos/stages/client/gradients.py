"""Gradients of a client's objective, Hessian products, full-batch descent."""

from collections.abc import Callable

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees, unit_dropout
from tff_algos.stages.client import objectives


def as_one(function: Callable[..., Structure]) -> Callable[..., Structure]:
  """Wraps a function of tensors so that TensorFlow does not inline it.

  When it is inlined into a loop, TensorFlow may process the gradient of a
  pooling before the pooling, and then selects a kernel that is ten times as
  slow. In eager mode the function itself is returned, so that breakpoints and
  prints work in it.
  """
  if tf.executing_eagerly():
    return function
  return tf.function(
    function, autograph=False, experimental_attributes={'_noinline': True}
  )


def gradient(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  scale: tf.Tensor | None = None,
) -> tuple[Structure, tf.Tensor]:
  """Returns the gradient, like the weights, and each example's loss `[n]`.

  Args:
    objective: Objective to differentiate.
    weights: Weights at which to differentiate.
    data: The examples; without a real one the gradient is 0.
    scale: Factor of the gradient, float32 `[]`; None for 1. It multiplies the
      objective's derivative by itself, one number, where scaling the result
      would pass over all of it.
  """
  with tf.GradientTape() as tape:
    tape.watch(weights)
    value, losses = objective(weights, data)
  return _of(tape, value, weights, scale), losses


def hessian_product(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  vector: Structure,
) -> Structure:
  """Returns the objective's Hessian at the weights times a vector, exactly.

  It is the gradient of <gradient, vector>, so no Hessian is ever built
  (Pearlmutter 1994).

  Args:
    objective: Twice differentiable at the weights.
    weights: Weights at which to differentiate.
    data: The examples.
    vector: Like the weights; taken as constant.
  """
  # Tensors of its own: the objective may hold the given ones as constants, such
  # as the centre of a proximal term from which clients start.
  weights = tf.nest.map_structure(tf.identity, weights)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    slope, _ = gradient(objective, weights, data)
  return _of(tape, slope, weights, vector)


def difference_product(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  vector: Structure,
  step: float,
) -> Structure:
  """Returns the Hessian times a vector by a central difference of gradients.

  (gradient(w + step v) - gradient(w - step v)) / (2 step), with an error of
  O(step^2) and the rounding of the gradients divided by the step.

  Args:
    objective: Objective to differentiate.
    weights: w.
    data: The examples.
    vector: v, like the weights.
    step: > 0.
  """
  offset = trees.scale(vector, step)
  ahead, behind = (
    gradient(objective, move(weights, offset), data)[0]
    for move in (trees.add, trees.subtract)
  )
  return trees.scale(trees.subtract(ahead, behind), 1 / (2 * step))


def full_batch_gradient(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  step: tf.Tensor | int,
) -> tuple[Structure, tf.Tensor]:
  """Returns `gradient` in a training step that reads all examples.

  Args:
    objective: Objective to differentiate.
    weights: Weights at which to differentiate.
    data: The examples.
    seed: int32 `[2]`; with the step it determines the dropped units.
    step: Number of the step, int32 `[]`.
  """
  rows = tf.range(tf.shape(data.mask)[0])
  draws = unit_dropout.Draws(seed, tf.convert_to_tensor(step), rows)
  with unit_dropout.in_step(0.0, draws):
    return gradient(objective, weights, data)


def descend(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  learning_rate: float,
  num_steps: tf.Tensor | int,
) -> tuple[Structure, statistics.MeanStat]:
  """Full-batch gradient descent on a client's examples.

  Args:
    objective: Objective to minimise.
    weights: Starting point.
    data: The client's examples, all read in every step.
    seed: int32 `[2]`; determines the dropped units.
    learning_rate: Learning rate, >= 0.
    num_steps: Number of steps, >= 0.

  Returns:
    The new weights, and the mean training loss of the examples, before each
    step. For a client without examples, the starting point.
  """
  # Gathered once for all steps.
  data = algorithm.ClientData(data.x, data.y, data.mask)
  slope_at = as_one(
    lambda weights, i: full_batch_gradient(objective, weights, data, seed, i)
  )

  def step(i, weights, loss):
    slope, losses = slope_at(weights, i)
    return (
      i + 1,
      trees.subtract(weights, trees.scale(slope, learning_rate)),
      trees.add(loss, statistics.weighted_mean(losses, data.mask)),
    )

  _, weights, loss = tf.while_loop(
    lambda i, *_: i < num_steps,
    step,
    (tf.constant(0), weights, statistics.empty_mean()),
    parallel_iterations=1,
  )
  return weights, loss


def _of(tape, target, weights, output_gradients):
  return tape.gradient(
    target,
    weights,
    output_gradients=output_gradients,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
