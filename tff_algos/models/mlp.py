"""Multilayer perceptron."""

import dataclasses
import math
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import checks
from tff_algos.core import model as model_lib
from tff_algos.models import layers, model_options


@dataclasses.dataclass(frozen=True)
class MlpConfig(model_options.ModelConfig):
  """Options of the perceptron, besides `model_options.ModelConfig`.

  Attributes:
    hidden_sizes: Units of each hidden layer, each >= 1.
    normalization: `'none'` or `'group'`, of one group, before each activation;
      hidden layers then have 2 units or more.
  """

  hidden_sizes: tuple[int, ...] = (64,)
  normalization: str = 'none'

  def __post_init__(self):
    super().__post_init__()
    for size in self.hidden_sizes:
      # Normalized by itself a unit would be constant.
      fewest = 1 if self.normalization == 'none' else 2
      checks.check_int('hidden_sizes', size, minimum=fewest)
    layers.check_normalization(self.normalization)


def build_mlp(
  config: MlpConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns dense layers with ReLU, then a logit per class or one output.

  Args:
    config: Sizes.
    input_shape: Shape of one example.
    num_outputs: Number of classes, or 1 for regression.
  """
  sizes = [math.prod(input_shape), *config.hidden_sizes, num_outputs]
  num_layers = len(sizes) - 1

  def initialize(seed):
    weights = OrderedDict()
    for i in range(num_layers):
      weights |= layers.dense_weights(
        seed, i, f'dense_{i}', sizes[i], sizes[i + 1]
      )
      if config.normalization == 'group' and i < num_layers - 1:
        weights[f'norm_{i}/scale'] = tf.ones([sizes[i + 1]])
        weights[f'norm_{i}/offset'] = tf.zeros([sizes[i + 1]])
    return weights

  def apply(weights, x):
    outputs = tf.reshape(x, [-1, sizes[0]])
    for i in range(num_layers):
      if i:
        outputs = tf.nn.relu(outputs)
      outputs = layers.apply_dense(weights, f'dense_{i}', outputs)
      if config.normalization == 'group' and i < num_layers - 1:
        outputs = layers.layer_norm(
          outputs, weights[f'norm_{i}/scale'], weights[f'norm_{i}/offset']
        )
    return outputs

  return model_lib.Model(
    'mlp',
    model_lib.REGRESSION if num_outputs == 1 else model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    initialize,
    apply,
    vectorizes=True,
  )
