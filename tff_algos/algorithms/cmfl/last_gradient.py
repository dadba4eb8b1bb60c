"""The mini-batch gradient where local training ended.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022) print in Eq. 5 what a client
uploads as g_k(w_k,tau; B_k,tau): one gradient, at the local model after tau
steps, on the batch that the next step would read. The steps before count
through that model only.
"""

import tensorflow as tf

from tff_algos.core import algorithm, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees, unit_dropout
from tff_algos.stages.client import gradients, local_training, objectives


def check(config: local_training.LocalTrainingConfig) -> None:
  """Raises ConfigError if there is no step after the last."""
  if config.solver != 'descent':
    raise errors.ConfigError(
      "local_training must have solver 'descent' where the last gradient is "
      f'uploaded, got {config.solver!r}: without steps there is no next batch'
    )


def after(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: local_training.LocalTrainingConfig,
) -> Structure:
  """Returns the gradient that a further step would take, with its weight decay.

  Args:
    objective: What local training made smaller.
    weights: What it ended with.
    data: The client's examples, `[capacity, ...]`, capacity >= 1; without a
      real one the gradient is that of the weight decay.
    seed: int32 `[2]`, that of the training.
    config: That of the training; its optimizer has no part in it.
  """

  @gradients.as_one
  def slope_at(weights, batch, draws):
    with unit_dropout.in_step(config.unit_dropout_rate, draws):
      return gradients.gradient(objective, weights, batch)

  slope, _ = slope_at(weights, *local_training.next_batch(data, seed, config))
  if not config.weight_decay:
    return slope
  return trees.add(slope, trees.scale(weights, config.weight_decay))
