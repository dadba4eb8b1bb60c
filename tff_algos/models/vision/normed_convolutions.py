"""Classifiers of convolutions without bias, each followed by a normalization.

What deep residual networks share. Their papers use batch normalization,
which `layers.check_normalization` refuses; group normalization (Wu and He 2018,
arXiv:1803.08494) has as many parameters, a scale and an offset for each
channel. So has batch normalization with frozen statistics, which is common in
fine-tuning: (x - mean) / deviation * gamma + beta is x * scale + offset.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import layers, model_options
from tff_algos.models.vision import convolutions

_NORMALIZATIONS = ('group', 'affine')


@dataclasses.dataclass(frozen=True)
class NormedConfig(model_options.ModelConfig):
  """Options of normalized networks, besides `model_options.ModelConfig`.

  Attributes:
    normalization: After each convolution, `'group'`; or `'affine'`, a scale and
      an offset for each channel, for pre-trained weights into which the frozen
      statistics of batch normalization are folded. From random weights networks
      this deep do not train without normalization.
  """

  normalization: str = 'group'

  def __post_init__(self):
    super().__post_init__()
    layers.check_normalization(self.normalization, _NORMALIZATIONS)
    if self.normalization == 'affine' and not self.pretrained.file:
      raise errors.ConfigError(
        "normalization is 'affine', but pretrained.file is empty: a network "
        'this '
        'deep does not train from random weights without normalization; name a '
        "file, or set normalization to 'group'"
      )


def build_classifier(
  name: str,
  input_shape: tuple[int, ...],
  num_outputs: int,
  num_features: int,
  add_body: Callable[[model_lib.Weights, tf.Tensor], None],
  apply_body: Callable[[model_lib.Weights, tf.Tensor], tf.Tensor],
) -> model_lib.Model:
  """Returns a body, the mean of its features over the image, a linear layer.

  The last kernel is Xavier-normal, the last bias 0.

  Args:
    name: Of the model.
    input_shape: `[height, width, channels]`.
    num_outputs: Number of classes.
    num_features: Channels of the body's output.
    add_body: (weights, seed of the model) adds the body's initial weights.
    apply_body: (weights, x) -> features `[batch, height, width, channels]`.

  Raises:
    ConfigError: If the input is no image.
  """
  layers.check_images(name, input_shape)

  def initialize(seed):
    weights = OrderedDict()
    add_body(weights, seed)
    return weights | layers.dense_weights(
      seed, len(weights), 'head', num_features, num_outputs
    )

  def apply(weights, x):
    features = tf.reduce_mean(apply_body(weights, x), axis=[1, 2])
    return layers.apply_dense(weights, 'head', features)

  return model_lib.Model(
    name,
    model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    initialize,
    apply,
    vectorizes=False,
  )


def add(
  weights: model_lib.Weights,
  name: str,
  seed: tf.Tensor,
  kernel_size: int,
  inputs: int,
  outputs: int,
) -> None:
  """Adds a layer's initial weights: `<name>/kernel`, `/scale` and `/offset`.

  The kernel is He-normal, the scale 1 and the offset 0.

  Args:
    weights: Of the layers before, whose number determines the layer's seed.
    name: Of the layer.
    seed: int32 `[2]` of the whole model.
    kernel_size: Height and width.
    inputs: Channels that each filter sees: 1 in a depthwise convolution.
    outputs: Channels.
  """
  kernel = layers.he_normal(
    seed, len(weights), [kernel_size, kernel_size, inputs, outputs]
  )
  weights[f'{name}/kernel'] = kernel
  weights[f'{name}/scale'] = tf.ones([outputs])
  weights[f'{name}/offset'] = tf.zeros([outputs])


def apply(
  weights: model_lib.Weights,
  name: str,
  x: tf.Tensor,
  normalization: str,
  *,
  stride: int = 1,
  border: int | None = None,
  max_groups: int = 8,
  is_depthwise: bool = False,
) -> tf.Tensor:
  """Returns the normalized convolution of a layer, `[batch, ..., outputs]`.

  Args:
    weights: Of the model.
    name: Of the layer.
    x: `[batch, height, width, inputs]`.
    normalization: As of `NormedConfig`.
    stride: Divides height and width, rounded up.
    border: Zeros on each side of the image; only for full convolutions. None
      for SAME padding, which adds an odd zero at the end, as in Keras and not
      in PyTorch.
    max_groups: As of `layers.group_norm`.
    is_depthwise: Whether each channel is convolved by itself.
  """
  kernel = weights[f'{name}/kernel']
  if is_depthwise:
    x = tf.nn.depthwise_conv2d(
      x, tf.transpose(kernel, [0, 1, 3, 2]), [1, stride, stride, 1], 'SAME'
    )
  else:
    padding = 'SAME'
    if border is not None:
      sides = [border, border]
      x, padding = tf.pad(x, [[0, 0], sides, sides, [0, 0]]), 'VALID'
    x = convolutions.convolve(x, kernel, padding, stride)
  scale, offset = weights[f'{name}/scale'], weights[f'{name}/offset']
  if normalization == 'affine':
    return x * scale + offset
  return layers.group_norm(x, scale, offset, max_groups)
