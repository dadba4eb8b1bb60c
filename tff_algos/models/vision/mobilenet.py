"""MobileNet-v2 (Sandler et al. 2018, arXiv:1801.04381), group-normalized.

PPFL's model of CIFAR-10 (arXiv 2310.14337), after FedEM (arXiv 2108.10252): 17
inverted residual blocks (1x1 expansion, depthwise convolution, 1x1 projection),
1280 features and one linear layer; 2,236,682 parameters for 10 classes. It
halves an image five times, so 32x32 pixels become one.

Kernels are initialized He-normal, scales with 1, offsets and the last bias with
0, the last kernel Xavier-normal. The papers start from weights pretrained on
ImageNet (see docs/pretrained.md) and train with dropout of 20 % of the
features, which is not offered here, so results differ from theirs.
"""

import functools

import tensorflow as tf

from tff_algos.core import model as model_lib
from tff_algos.models.vision import normed_convolutions

_STEM = 32
_FEATURES = 1280
# Expansion, channels, blocks, stride of the first block (the paper's Table 2).
_STAGES = (
  (1, 16, 1, 1),
  (6, 24, 2, 2),
  (6, 32, 3, 2),
  (6, 64, 4, 2),
  (6, 96, 3, 1),
  (6, 160, 3, 2),
  (6, 320, 1, 1),
)


def build_mobilenet_v2(
  config: normed_convolutions.NormedConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Returns the classifier for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image.
  """

  def add_body(weights, seed):
    add = normed_convolutions.add
    add(weights, 'stem', seed, 3, input_shape[2], _STEM)
    for name, inputs, (expansion, outputs, _) in _blocks():
      hidden = inputs * expansion
      if expansion > 1:
        add(weights, f'{name}/expand', seed, 1, inputs, hidden)
      add(weights, f'{name}/filter', seed, 3, 1, hidden)
      add(weights, f'{name}/project', seed, 1, hidden, outputs)
    add(weights, 'features', seed, 1, _STAGES[-1][1], _FEATURES)

  convolve = functools.partial(
    normed_convolutions.apply, normalization=config.normalization
  )

  def convolve_relu(*args, **options):
    return tf.nn.relu6(convolve(*args, **options))

  def apply_body(weights, x):
    hidden = convolve_relu(weights, 'stem', x, stride=2)
    for name, inputs, (expansion, outputs, stride) in _blocks():
      block = hidden
      if expansion > 1:
        block = convolve_relu(weights, f'{name}/expand', block)
      block = convolve_relu(
        weights, f'{name}/filter', block, stride=stride, is_depthwise=True
      )
      block = convolve(weights, f'{name}/project', block)
      is_residual = (inputs, stride) == (outputs, 1)
      hidden = hidden + block if is_residual else block
    return convolve_relu(weights, 'features', hidden)

  return normed_convolutions.build_classifier(
    'mobilenet_v2', input_shape, num_outputs, _FEATURES, add_body, apply_body
  )


def _blocks():
  """Yields each block's name, its inputs, (expansion, channels, stride)."""
  inputs, index = _STEM, 0
  for expansion, outputs, num_blocks, stride in _STAGES:
    for j in range(num_blocks):
      yield f'block_{index}', inputs, (expansion, outputs, 1 if j else stride)
      inputs, index = outputs, index + 1
