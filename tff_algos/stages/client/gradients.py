"""Gradients of a client's objective, Hessian products, full-batch descent."""

from collections.abc import Callable

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees
from tff_algos.stages.client import objectives


def as_one(function: Callable[..., Structure]) -> Callable[..., Structure]:
  """Returns a function of tensors that TensorFlow keeps as one, not inlined.

  Among the operations of a loop TensorFlow may meet the gradient of a pooling
  before the pooling, and then takes a kernel for it that is ten times as slow.
  Eagerly it is the function itself, so that breakpoints and prints work in it.
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
) -> tuple[Structure, tf.Tensor]:
  """Returns the gradient, like the weights, and each example's loss `[n]`.

  Args:
    objective: What to differentiate.
    weights: Where.
    data: The examples; without a real one the gradient is 0.
  """
  with tf.GradientTape() as tape:
    tape.watch(weights)
    value, losses = objective(weights, data)
  return _of(tape, value, weights), losses


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
    objective: Twice differentiable where it is asked.
    weights: Where.
    data: The examples.
    vector: Like the weights; taken as constant.
  """
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

  (gradient(w + step v) - gradient(w - step v)) / (2 step): wrong by O(step^2),
  and by the rounding of the gradients divided by the step.

  Args:
    objective: What to differentiate.
    weights: w.
    data: The examples.
    vector: v, like the weights.
    step: > 0.
  """
  offset = trees.scale(vector, step)
  ahead, _ = gradient(objective, trees.add(weights, offset), data)
  behind, _ = gradient(objective, trees.subtract(weights, offset), data)
  return trees.scale(trees.subtract(ahead, behind), 1 / (2 * step))


def descend(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  learning_rate: float,
  num_steps: tf.Tensor | int,
) -> tuple[Structure, statistics.MeanStat]:
  """Takes steps of gradient descent, each on all examples of a client.

  Args:
    objective: What to make smaller.
    weights: Where to start.
    data: The client's examples, which are read at once.
    learning_rate: Of a step, >= 0.
    num_steps: How many, >= 0.

  Returns:
    The weights after, and the mean loss of the examples as they were met. A
    client without examples gets its start back.
  """
  # Gathered here, and not anew in every step.
  data = algorithm.ClientData(data.x, data.y, data.mask)
  slope_at = as_one(lambda weights: gradient(objective, weights, data))

  def step(i, weights, loss):
    slope, losses = slope_at(weights)
    return (
      i + 1,
      trees.subtract(weights, trees.scale(slope, learning_rate)),
      trees.add(loss, statistics.masked_mean(losses, data.mask)),
    )

  nothing = statistics.MeanStat(tf.constant(0.0), tf.constant(0.0))
  _, weights, loss = tf.while_loop(
    lambda i, *_: i < num_steps,
    step,
    (tf.constant(0), weights, nothing),
    parallel_iterations=1,
  )
  return weights, loss


def _of(tape, target, weights, output_gradients=None):
  return tape.gradient(
    target,
    weights,
    output_gradients=output_gradients,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
