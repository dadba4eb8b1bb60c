"""The one local training loop; what it minimises is an argument."""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm, checks
from tff_algos.metrics import statistics
from tff_algos.numerics import index_random, optimizers, trees
from tff_algos.stages import objectives

Structure = Any


@dataclasses.dataclass(frozen=True)
class LocalTrainingConfig:
  """How a client trains.

  Attributes:
    num_local_epochs: Passes over the client's examples, >= 1, each in a fresh
      order.
    batch_size: Examples a step, >= 1; a short last batch keeps its weight.
    optimizer: The client optimizer; its state starts fresh in every round.
  """

  num_local_epochs: int = 1
  batch_size: int = 10
  optimizer: optimizers.OptimizerConfig = optimizers.OptimizerConfig()

  def __post_init__(self):
    checks.check_int('num_local_epochs', self.num_local_epochs, minimum=1)
    checks.check_int('batch_size', self.batch_size, minimum=1)


def batch_positions(
  seed: tf.Tensor, mask: tf.Tensor, config: LocalTrainingConfig
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns which rows each step reads.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for real rows.
    config: Epochs and batch size.

  Returns:
    Row positions int32 `[num_steps, batch_size]` and their mask, float32. A
    masked slot reads a real row, if there is one. Steps with an all-zero mask
    are padding and must change nothing.
  """
  capacity = tf.shape(mask)[0]
  num_batches = (capacity + config.batch_size - 1) // config.batch_size
  orders = index_random.shuffled_epochs(seed, mask, config.num_local_epochs)
  short = num_batches * config.batch_size - capacity
  orders = tf.pad(orders, [[0, 0], [0, short]])
  in_range = tf.cast(tf.range(capacity + short) < capacity, tf.float32)
  step_mask = tf.gather(mask, orders) * in_range
  # What lies in the padding is never read: even 0 * NaN would be NaN.
  orders = tf.where(step_mask > 0, orders, orders[:, :1])
  shape = [config.num_local_epochs * num_batches, config.batch_size]
  return tf.reshape(orders, shape), tf.reshape(step_mask, shape)


def train(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: LocalTrainingConfig,
) -> tuple[Structure, statistics.MeanStat]:
  """Trains for `num_local_epochs` on one client's examples.

  Args:
    objective: What to make smaller.
    weights: Where to start.
    data: The client's examples.
    seed: int32 `[2]`; decides the order of the examples.
    config: Epochs, batch size, optimizer.

  Returns:
    The trained weights, and the mean loss of the examples as they were met.
    A client without examples gets its start back.
  """
  optimizer = optimizers.build_optimizer(config.optimizer)
  positions, masks = batch_positions(seed, data.mask, config)
  num_steps = tf.shape(positions)[0]

  def step(i, weights, slots, loss):
    batch = data.take(positions[i], masks[i])
    is_real = tf.reduce_max(batch.mask)
    with tf.GradientTape() as tape:
      tape.watch(weights)
      value, losses = objective(weights, batch)
    gradient = tape.gradient(
      value,
      weights,
      # Scaled where it is one number, not where it is as large as the model.
      output_gradients=optimizer.gradient_scale(is_real),
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    weights, slots = optimizer.step(weights, gradient, slots, is_real)
    batch_loss = statistics.masked_mean(losses, batch.mask)
    return i + 1, weights, slots, trees.add(loss, batch_loss)

  start = (
    tf.constant(0),
    weights,
    optimizer.initialize(weights),
    statistics.MeanStat(tf.constant(0.0), tf.constant(0.0)),
  )
  _, weights, _, loss = tf.while_loop(
    lambda i, *_: i < num_steps, step, start, parallel_iterations=1
  )
  return weights, loss
