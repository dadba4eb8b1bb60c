"""The server's step: an optimizer whose gradient is what the clients moved.

Reddi et al., "Adaptive Federated Optimization" (2021), arXiv:2003.00295,
Algorithm 1. The pseudo-gradient is the global model less the mean of the
clients' models. SGD with learning rate 1 and no momentum replaces the global
model by the mean, which is FedAvg.
"""

import tensorflow as tf

from tff_algos.core.structures import Structure
from tff_algos.numerics import optimizers, trees
from tff_algos.rounds import aggregation

# Of a configuration: FedAvg.
REPLACE = optimizers.OptimizerConfig('sgd', learning_rate=1.0)


def initial_slots(
  weights: Structure, config: optimizers.OptimizerConfig
) -> Structure:
  """Returns what the optimizer keeps between rounds, before the first."""
  return optimizers.build_optimizer(config).initialize(weights)


def step(
  weights: Structure,
  mean: aggregation.Mean,
  slots: Structure,
  config: optimizers.OptimizerConfig,
) -> tuple[Structure, Structure]:
  """Returns the new global weights and slots.

  Args:
    weights: The old ones.
    mean: Of the clients' weights. If nobody contributed, nothing changes.
    slots: As of `initial_slots`.
    config: Which optimizer.
  """
  optimizer = optimizers.build_optimizer(config)
  has_mean = tf.cast(mean.weight > 0, tf.float32)
  gradient = trees.scale(
    trees.subtract(weights, mean.value), optimizer.gradient_scale(has_mean)
  )
  return optimizer.step(weights, gradient, slots, has_mean, None)


def replace_or_step(
  weights: Structure,
  mean: aggregation.Mean,
  slots: Structure,
  config: optimizers.OptimizerConfig,
) -> tuple[Structure, Structure]:
  """Returns what `step` does, but with `REPLACE` the mean to the last bit.

  A step to it ends next to it, as w - (w - mean) is rounded twice.
  """
  if config == REPLACE:
    return trees.select(mean.weight > 0, mean.value, weights), slots
  return step(weights, mean, slots, config)
