"""Control variates: what clients of SCAFFOLD and FedDC keep of their gradients.

Karimireddy et al. (2020), "SCAFFOLD", arXiv:1910.06378, option II.
"""

import tensorflow as tf

from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.stages.client import local_training


def change(
  received: Structure,
  trained: Structure,
  mean_control: Structure,
  mask: tf.Tensor,
  config: local_training.LocalTrainingConfig,
) -> Structure:
  """Returns c_k+ - c_k = (x - y) / distance - c.

  Args:
    received: x, from which the client trained on its objective + <c - c_k, y>.
    trained: y.
    mean_control: c, like the model.
    mask: `[capacity]`, 1 for real rows.
    config: Local training by plain SGD.

  Returns:
    Like the model; zeros for a client without examples.
  """
  distance = local_training.distance_per_gradient(mask, config)
  mean_gradient = trees.scale(
    trees.subtract(received, trained), tf.math.divide_no_nan(1.0, distance)
  )
  return trees.select(
    distance > 0,
    trees.subtract(mean_gradient, mean_control),
    trees.zeros_like(trained),
  )
