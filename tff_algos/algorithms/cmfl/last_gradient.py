"""Mini-batch gradient at the final local model, as CMFL's upload.

In Eq. 5 of Che, Li, Chen, He and Zheng (CMFL, TPDS 2022) a client uploads
g_k(w_k,tau; B_k,tau): one gradient, at the local model after tau steps, on the
batch that the next step would read. The earlier steps enter through that model
only.
"""

import tensorflow as tf

from tff_algos.core import algorithm, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees, unit_dropout
from tff_algos.stages.client import gradients, local_training, objectives


def check(config: local_training.LocalTrainingConfig) -> None:
  """Raises ConfigError if local training has no batches of steps."""
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
    objective: Objective of local training.
    weights: Final weights of local training.
    data: The client's examples, `[capacity, ...]`, capacity >= 1; without real
      examples it is the gradient of the weight decay alone.
    seed: int32 `[2]`, seed of local training.
    config: Options of local training; its optimizer is not used.
  """

  @gradients.as_one
  def slope_at(weights, batch, draws):
    with unit_dropout.in_step(config.unit_dropout_rate, draws):
      return gradients.gradient(objective, weights, batch)

  slope, _ = slope_at(weights, *local_training.next_batch(data, seed, config))
  if not config.weight_decay:
    return slope
  return trees.add(slope, trees.scale(weights, config.weight_decay))
