"""Server optimizer on the pseudo-gradient of a round (FedOpt).

Reddi et al., "Adaptive Federated Optimization" (2021), arXiv:2003.00295,
Algorithm 1. The pseudo-gradient is the global model less the mean of the
clients' models. SGD with learning rate 1 and no momentum steps to the mean, up
to rounding, which is FedAvg.
"""

import tensorflow as tf

from tff_algos.core.structures import Structure
from tff_algos.numerics import optimizers, trees
from tff_algos.rounds import aggregation

# Default configuration: FedAvg.
REPLACE = optimizers.OptimizerConfig('sgd', learning_rate=1.0)


def initial_slots(
  weights: Structure, config: optimizers.OptimizerConfig
) -> Structure:
  """Returns the initial slots of the server optimizer."""
  return optimizers.build_optimizer(config).initialize(weights)


def step(
  weights: Structure,
  mean: aggregation.Mean,
  slots: Structure,
  config: optimizers.OptimizerConfig,
) -> tuple[Structure, Structure]:
  """Returns the new global weights and slots.

  Args:
    weights: The old global weights.
    mean: Mean of the clients' weights. If no client contributed, weights and
      slots are unchanged.
    slots: As from `initial_slots`.
    config: The optimizer.
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
  """Returns `step`, or with `REPLACE` the mean itself, to the last bit.

  A step would differ from the mean, because w - (w - mean) is rounded twice.
  """
  if config == REPLACE:
    return aggregation.mean_or_old(mean, weights), slots
  return step(weights, mean, slots, config)
