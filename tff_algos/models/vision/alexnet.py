"""AlexNet, the single-tower version (Krizhevsky 2014, arXiv:1404.5997).

With the channels of torchvision: the paper's fourth convolution has 384.

Convolutions of 64, 192, 384, 256 and 256 channels with kernels of 11, 5, 3, 3
and 3, the first with stride 4; each with ReLU, and 3x3 pooling with stride 2
after the first, the second and the last. Then two dense layers of 4,096 units
with ReLU, and one to the classes. Images are first resized to 224 x 224,
bilinearly: 28 x 28 is too small for the strides. 57,242,366 parameters for one
channel and 62 classes, as CMFL (Che et al., arXiv 2108.00365) trains it on
FEMNIST.

The original applies dropout to half of the inputs of each dense layer but the
last. Ours has no dropout, as CMFL's paper does not mention it.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import checks
from tff_algos.core import model as model_lib
from tff_algos.models import layers, model_options
from tff_algos.models.vision import convolutions

# With smaller images nothing is left after the last pooling.
_SMALLEST_SIDE = 63


class _Convolution(NamedTuple):
  channels: int
  side: int
  strides: int
  border: int
  is_pooled: bool


_CONVOLUTIONS = (
  _Convolution(64, side=11, strides=4, border=2, is_pooled=True),
  _Convolution(192, side=5, strides=1, border=2, is_pooled=True),
  _Convolution(384, side=3, strides=1, border=1, is_pooled=False),
  _Convolution(256, side=3, strides=1, border=1, is_pooled=False),
  _Convolution(256, side=3, strides=1, border=1, is_pooled=True),
)


@dataclasses.dataclass(frozen=True)
class AlexNetConfig(model_options.ModelConfig):
  """Options of AlexNet, besides `model_options.ModelConfig`.

  Attributes:
    image_side: Height and width to which images are resized, >= 63. Smaller
      images are faster, with fewer weights in the first dense layer.
    hidden_sizes: Units of each dense layer but the last, each >= 1.
  """

  image_side: int = 224
  hidden_sizes: tuple[int, ...] = (4096, 4096)

  def __post_init__(self):
    super().__post_init__()
    checks.check_int('image_side', self.image_side, minimum=_SMALLEST_SIDE)
    for size in self.hidden_sizes:
      checks.check_int('hidden_sizes', size, minimum=1)


def build_alexnet(
  config: AlexNetConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the network for images `[height, width, channels]` of any size.

  Kernels of convolutions are initialized He-normal, of dense layers
  Xavier-normal, and biases with zeros.

  Raises:
    ConfigError: If the input is no image.
  """
  layers.check_images('alexnet', input_shape)
  flat_size = _output_side(config.image_side) ** 2 * _CONVOLUTIONS[-1].channels
  sizes = (flat_size, *config.hidden_sizes, num_outputs)

  def initialize(seed):
    weights, depth = OrderedDict(), input_shape[2]
    for i, layer in enumerate(_CONVOLUTIONS):
      shape = [layer.side, layer.side, depth, layer.channels]
      weights[f'conv_{i}/kernel'] = layers.he_normal(seed, i, shape)
      weights[f'conv_{i}/bias'] = tf.zeros([layer.channels])
      depth = layer.channels
    for i in range(len(sizes) - 1):
      index = len(_CONVOLUTIONS) + i
      weights |= layers.dense_weights(
        seed, index, f'dense_{i}', sizes[i], sizes[i + 1]
      )
    return weights

  def apply(weights, x):
    hidden = _resize(x, config.image_side)
    for i, layer in enumerate(_CONVOLUTIONS):
      hidden = _convolve(hidden, weights[f'conv_{i}/kernel'], layer)
      hidden = tf.nn.relu(hidden + weights[f'conv_{i}/bias'])
      if layer.is_pooled:
        hidden = tf.nn.max_pool2d(hidden, 3, 2, 'VALID')
    hidden = tf.reshape(hidden, [-1, flat_size])
    for i in range(len(sizes) - 1):
      hidden = tf.nn.relu(hidden) if i else hidden
      hidden = layers.apply_dense(weights, f'dense_{i}', hidden)
    return hidden

  return model_lib.Model(
    'alexnet',
    model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    initialize,
    apply,
    vectorizes=False,
  )


def _resize(x, side):
  """Returns resized images, of the same type."""
  # tf.image.resize returns float32 for any type.
  return tf.cast(tf.image.resize(x, [side, side]), x.dtype)


def _convolve(inputs, kernel, layer):
  border = [layer.border] * 2
  padded = tf.pad(inputs, [[0, 0], border, border, [0, 0]])
  return convolutions.convolve(padded, kernel, 'VALID', layer.strides)


def _output_side(side: int) -> int:
  """Returns the length of a side after all layers."""
  for layer in _CONVOLUTIONS:
    padded = side + 2 * layer.border
    side = convolutions.output_side(padded, layer.side, 'VALID', layer.strides)
    if layer.is_pooled:
      side = convolutions.output_side(side, 3, 'VALID', 2)
  return side
