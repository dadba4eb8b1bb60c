"""A small network for images: two 5x5 convolutions, one hidden layer.

Convolutions of 6 and 16 channels without padding, each with ReLU and 2x2
pooling; then 120 hidden units. These are the sizes of LeNet-5 (LeCun et al.
1998) without its second hidden layer: pFedKM (Tang, Guo and Guo 2021) specifies
only "two convolutional and two fully connected layers". 52,202 parameters for
32x32x3 images and 10 classes.
"""

import dataclasses
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import layers
from tff_algos.models.factors import decomposition

_CHANNELS = (6, 16)
_KERNEL_SIZE = 5
_HIDDEN_SIZE = 120
_SMALLEST_SIDE = 16


@dataclasses.dataclass(frozen=True)
class SmallCnnConfig(decomposition.DecomposableConfig):
  """The network has no options besides those of `DecomposableConfig`."""


def build_small_cnn(
  config: SmallCnnConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the network for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image, or too small for two convolutions.
  """
  del config
  if len(input_shape) != 3 or min(input_shape[:2]) < _SMALLEST_SIDE:
    raise errors.ConfigError(
      'small_cnn takes images [height, width, channels] with sides of at least '
      f'{_SMALLEST_SIDE}, got shape {input_shape}'
    )
  channels = (input_shape[2], *_CHANNELS)
  height, width = (_halve_twice(side) for side in input_shape[:2])
  sizes = [height * width * channels[-1], _HIDDEN_SIZE, num_outputs]

  def initialize(seed):
    weights = OrderedDict()
    for i in range(2):
      shape = [_KERNEL_SIZE, _KERNEL_SIZE, *channels[i : i + 2]]
      weights[f'conv_{i}/kernel'] = layers.xavier_normal(seed, i, shape)
      weights[f'conv_{i}/bias'] = tf.zeros([channels[i + 1]])
    for i in range(2):
      shape = sizes[i : i + 2]
      weights[f'dense_{i}/kernel'] = layers.xavier_normal(seed, 2 + i, shape)
      weights[f'dense_{i}/bias'] = tf.zeros([sizes[i + 1]])
    return weights

  def apply(weights, x):
    hidden = x
    for i in range(2):
      hidden = layers.convolution(
        hidden, weights[f'conv_{i}/kernel'], weights[f'conv_{i}/bias'], 'VALID'
      )
      hidden = tf.nn.max_pool2d(tf.nn.relu(hidden), 2, 2, 'VALID')
    hidden = tf.reshape(hidden, [-1, sizes[0]])
    hidden = layers.dense(
      hidden, weights['dense_0/kernel'], weights['dense_0/bias']
    )
    return layers.dense(
      tf.nn.relu(hidden), weights['dense_1/kernel'], weights['dense_1/bias']
    )

  return model_lib.Model(
    'small_cnn',
    model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    initialize,
    apply,
    vectorizes=False,
  )


def _halve_twice(side: int) -> int:
  """Returns a side's length after both convolutions and poolings."""
  for _ in range(2):
    side = (side - _KERNEL_SIZE + 1) // 2
  return side
