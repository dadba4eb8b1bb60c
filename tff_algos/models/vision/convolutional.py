"""Convolutional networks built from a layout of their layers."""

import dataclasses
import itertools
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import layers
from tff_algos.models.factors import decomposition
from tff_algos.models.vision import convolutions
from tff_algos.numerics import unit_dropout


@dataclasses.dataclass(frozen=True)
class ConvolutionalConfig(decomposition.DecomposableConfig):
  """Options of a network, besides those of `DecomposableConfig`.

  Attributes:
    normalization: `'none'` (as in the papers) or `'group'`, after each
      convolution.
  """

  normalization: str = 'none'

  def __post_init__(self):
    super().__post_init__()
    layers.check_normalization(self.normalization)


class Layout(NamedTuple):
  """Layers of a network; an activation follows every layer but the last.

  Attributes:
    name: Of the model.
    kernel_sizes: Height and width of the kernels of each convolution.
    channels: Of each convolution.
    convolutions_per_pooling: Convolutions before each 2x2 max-pooling, which
      halves the sides.
    hidden_sizes: Units of each dense layer but the last.
    padding: `'SAME'` keeps height and width, which must be divisible by the
      poolings; `'VALID'` removes kernel size - 1 pixels, and poolings drop an
      odd last pixel.
    borders: Zeros around the inputs of each convolution of `'VALID'` padding;
      empty for none.
    negative_slope: Slope of the activation below 0; 0 for ReLU.
    drops_after: Indices of the hidden dense layers followed by dropout, if the
      training sets a rate (`numerics.unit_dropout`).
  """

  name: str
  kernel_sizes: tuple[int, ...]
  channels: tuple[int, ...]
  convolutions_per_pooling: int
  hidden_sizes: tuple[int, ...]
  padding: str = 'SAME'
  borders: tuple[int, ...] = ()
  negative_slope: float = 0.0
  drops_after: tuple[int, ...] = ()

  @property
  def shrinkage(self) -> int:
    """Returns the factor by which poolings shrink each side of the image."""
    return 2 ** (len(self.channels) // self.convolutions_per_pooling)

  def border(self, index: int) -> int:
    """Returns the zeros on each side of a convolution's input."""
    return self.borders[index] if self.borders else 0

  def output_side(self, side: int) -> int:
    """Returns a side's length after the layers; <= 0 if it is too short."""
    for i, kernel_size in enumerate(self.kernel_sizes):
      padded = side + 2 * self.border(i)
      side = convolutions.output_side(padded, kernel_size, self.padding, 1)
      if (i + 1) % self.convolutions_per_pooling == 0:
        side //= 2
    return side


def build(
  layout: Layout,
  config: ConvolutionalConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Returns the classifier for images `[height, width, channels]`.

  Kernels are initialized Xavier-normal, biases with zeros.

  Raises:
    ConfigError: If the input is no image, is too small, or with `'SAME'`
      padding has sides that are not divisible by the poolings.
  """
  _check_input(layout, input_shape)
  return model_lib.Model(
    layout.name,
    model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    _build_initialize(layout, config, input_shape, num_outputs),
    _build_apply(layout, config),
    vectorizes=False,
  )


def _check_input(layout, input_shape):
  takes = f'{layout.name} takes images [height, width, channels] with sides '
  if layout.padding == 'VALID':
    smallest = next(
      side for side in itertools.count(1) if layout.output_side(side) > 0
    )
    if len(input_shape) != 3 or min(input_shape[:2]) < smallest:
      raise errors.ConfigError(
        f'{takes}of at least {smallest}, got shape {input_shape}'
      )
    return
  unit = layout.shrinkage
  if len(input_shape) != 3 or input_shape[0] % unit or input_shape[1] % unit:
    raise errors.ConfigError(
      f'{takes}that are multiples of {unit} (the factor of its poolings), '
      f'got shape {input_shape}'
    )


def _build_initialize(layout, config, input_shape, num_outputs):
  height, width, depth = input_shape
  channels = (depth, *layout.channels)
  pixels = layout.output_side(height) * layout.output_side(width)
  flat_size = pixels * channels[-1]
  sizes = (flat_size, *layout.hidden_sizes, num_outputs)

  def initialize(seed):
    weights = OrderedDict()
    for i in range(len(layout.channels)):
      shape = [layout.kernel_sizes[i]] * 2 + [*channels[i : i + 2]]
      weights[f'conv_{i}/kernel'] = layers.xavier_normal(seed, i, shape)
      weights[f'conv_{i}/bias'] = tf.zeros([channels[i + 1]])
      if config.normalization == 'group':
        weights[f'norm_{i}/scale'] = tf.ones([channels[i + 1]])
        weights[f'norm_{i}/offset'] = tf.zeros([channels[i + 1]])
    for i in range(len(sizes) - 1):
      index = len(layout.channels) + i
      weights |= layers.dense_weights(
        seed, index, f'dense_{i}', sizes[i], sizes[i + 1]
      )
    return weights

  return initialize


def _build_apply(layout, config):
  def activate(hidden):
    if layout.negative_slope:
      return tf.nn.leaky_relu(hidden, layout.negative_slope)
    return tf.nn.relu(hidden)

  def apply(weights, x):
    hidden = x
    for i in range(len(layout.channels)):
      border = [layout.border(i)] * 2
      if any(border):
        hidden = tf.pad(hidden, [[0, 0], border, border, [0, 0]])
      hidden = convolutions.convolve(
        hidden, weights[f'conv_{i}/kernel'], layout.padding
      )
      hidden += weights[f'conv_{i}/bias']
      if config.normalization == 'group':
        hidden = layers.group_norm(
          hidden, weights[f'norm_{i}/scale'], weights[f'norm_{i}/offset']
        )
      hidden = activate(hidden)
      if (i + 1) % layout.convolutions_per_pooling == 0:
        hidden = tf.nn.max_pool2d(hidden, 2, 2, 'VALID')
    hidden = tf.reshape(hidden, [-1, weights['dense_0/kernel'].shape[0]])
    num_hidden = len(layout.hidden_sizes)
    for i in range(num_hidden + 1):
      hidden = layers.apply_dense(weights, f'dense_{i}', hidden)
      if i < num_hidden:
        hidden = activate(hidden)
      if i in layout.drops_after:
        hidden = unit_dropout.drop(hidden, i)
    return hidden

  return apply
