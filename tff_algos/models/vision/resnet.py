"""ResNet-18 (He et al. 2016, arXiv:1512.03385) with group normalization.

Four stages of two blocks with 64, 128, 256 and 512 channels, a mean over the
image, one linear layer. The groups are 8, 8, 16 and 32, as in Pillutla et al.
(2022, arXiv:2204.03809), whose model of federated EMNIST PPFL uses (arXiv
2310.14337): stem `'small'`, 11,199,486 parameters for 28x28x1 images of 62
classes. With the original stem, `'large'`, it has 11,279,112 for 64x64x3 images
of 200 classes, and 11,273,169 with kernels factored into 9 atoms.

Kernels are initialized He-normal, scales with 1, offsets and the last bias with
0, the last kernel Xavier-normal; or all from a file, see docs/pretrained.md.
Images are padded equally on every side, so that outputs with PyTorch's weights
equal PyTorch's.
"""

import dataclasses
import functools

import tensorflow as tf

from tff_algos.core import checks
from tff_algos.core import model as model_lib
from tff_algos.models.factors import decomposition
from tff_algos.models.vision import normed_convolutions

STEMS = ('small', 'large')
# Channels, stride and groups of each stage.
_STAGES = ((64, 1, 8), (128, 2, 8), (256, 2, 16), (512, 2, 32))
_BLOCKS_PER_STAGE = 2


@dataclasses.dataclass(frozen=True)
class ResNetConfig(
  normed_convolutions.NormedConfig, decomposition.DecomposableConfig
):
  """Options of the network, besides those of its bases.

  Attributes:
    stem: The first layer: `'small'`, a 3x3 convolution, for images of about 30
      pixels; or `'large'`, a 7x7 convolution and a 3x3 max-pooling that halve
      the image each, as in the paper.
  """

  stem: str = 'small'

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of('stem', self.stem, STEMS)


def build_resnet18(
  config: ResNetConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the classifier for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image.
  """
  stem_size = 3 if config.stem == 'small' else 7

  def add_body(weights, seed):
    normed_convolutions.add(
      weights, 'stem', seed, stem_size, input_shape[2], _STAGES[0][0]
    )
    for name, inputs, (outputs, stride, _) in _blocks():
      normed_convolutions.add(weights, f'{name}/0', seed, 3, inputs, outputs)
      normed_convolutions.add(weights, f'{name}/1', seed, 3, outputs, outputs)
      if (inputs, stride) != (outputs, 1):
        normed_convolutions.add(
          weights, f'{name}/shortcut', seed, 1, inputs, outputs
        )

  convolve = functools.partial(
    normed_convolutions.apply, normalization=config.normalization
  )

  def apply_body(weights, x):
    stride = 1 if config.stem == 'small' else 2
    hidden = convolve(weights, 'stem', x, stride=stride, border=stem_size // 2)
    hidden = tf.nn.relu(hidden)
    if config.stem == 'large':
      # Zeros never win the maximum, as ReLU outputs are >= 0.
      hidden = tf.pad(hidden, [[0, 0], [1, 1], [1, 1], [0, 0]])
      hidden = tf.nn.max_pool2d(hidden, 3, 2, 'VALID')
    for name, _, (_, stride, groups) in _blocks():
      hidden = _apply_block(convolve, weights, name, hidden, stride, groups)
    return hidden

  return normed_convolutions.build_classifier(
    'resnet18', input_shape, num_outputs, _STAGES[-1][0], add_body, apply_body
  )


def _blocks():
  """Yields each block's name, its inputs, and (channels, stride, groups)."""
  inputs = _STAGES[0][0]
  for i, (outputs, stride, groups) in enumerate(_STAGES):
    for j in range(_BLOCKS_PER_STAGE):
      shape = (outputs, stride if j == 0 else 1, groups)
      yield f'stage_{i}/block_{j}', inputs, shape
      inputs = outputs


def _apply_block(convolve, weights, name, x, stride, groups):
  hidden = convolve(
    weights, f'{name}/0', x, stride=stride, border=1, max_groups=groups
  )
  hidden = convolve(weights, f'{name}/1', tf.nn.relu(hidden), max_groups=groups)
  if f'{name}/shortcut/kernel' in weights:
    x = convolve(
      weights, f'{name}/shortcut', x, stride=stride, max_groups=groups
    )
  return tf.nn.relu(hidden + x)
