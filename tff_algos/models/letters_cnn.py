"""FedSoft's letters network: two 5x5 convolutions and 512 hidden units.

The paper gives the kernel size, padding, pooling and the hidden layer. The
channel counts (32 and 64) and the ReLU after each convolution are those of
FedAvg's network, of which it is a copy: 1,671,578 parameters for 28x28 images
and 26 classes.
"""

import dataclasses
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import layers, precision

_CHANNELS = (32, 64)
_KERNEL_SIZE = 5
_HIDDEN_SIZE = 512


@dataclasses.dataclass(frozen=True)
class LettersCnnConfig(precision.PrecisionConfig):
  """Options of the network, besides `precision.PrecisionConfig`.

  Attributes:
    normalization: `'none'` (the paper) or `'group'`, after each convolution.
  """

  normalization: str = 'none'

  def __post_init__(self):
    super().__post_init__()
    layers.check_normalization(self.normalization)


def build_letters_cnn(
  config: LettersCnnConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the network for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image whose sides are multiples of 4.
  """
  if len(input_shape) != 3 or input_shape[0] % 4 or input_shape[1] % 4:
    raise errors.ConfigError(
      'letters_cnn takes images [height, width, channels] with sides that are '
      f'multiples of 4 (two poolings halve them), got shape {input_shape}'
    )
  channels = (input_shape[2], *_CHANNELS)
  flat_size = input_shape[0] * input_shape[1] // 16 * channels[-1]

  def initialize(seed):
    weights = OrderedDict()
    for i in range(len(_CHANNELS)):
      shape = [_KERNEL_SIZE, _KERNEL_SIZE, *channels[i : i + 2]]
      weights[f'conv_{i}/kernel'] = layers.xavier_normal(seed, i, shape)
      weights[f'conv_{i}/bias'] = tf.zeros([channels[i + 1]])
      if config.normalization == 'group':
        weights[f'norm_{i}/scale'] = tf.ones([channels[i + 1]])
        weights[f'norm_{i}/offset'] = tf.zeros([channels[i + 1]])
    sizes = [flat_size, _HIDDEN_SIZE, num_outputs]
    for i in range(2):
      weights[f'dense_{i}/kernel'] = layers.xavier_normal(
        seed, 2 + i, sizes[i : i + 2]
      )
      weights[f'dense_{i}/bias'] = tf.zeros([sizes[i + 1]])
    return weights

  def apply(weights, x):
    hidden = x
    for i in range(len(_CHANNELS)):
      hidden = layers.convolution(
        hidden, weights[f'conv_{i}/kernel'], weights[f'conv_{i}/bias']
      )
      if config.normalization == 'group':
        hidden = layers.group_norm(
          hidden, weights[f'norm_{i}/scale'], weights[f'norm_{i}/offset']
        )
      hidden = tf.nn.max_pool2d(tf.nn.relu(hidden), 2, 2, 'VALID')
    hidden = tf.reshape(hidden, [-1, flat_size])
    hidden = layers.dense(
      hidden, weights['dense_0/kernel'], weights['dense_0/bias']
    )
    return layers.dense(
      tf.nn.relu(hidden), weights['dense_1/kernel'], weights['dense_1/bias']
    )

  return model_lib.Model(
    'letters_cnn',
    model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    initialize,
    apply,
    vectorizes=False,
  )
