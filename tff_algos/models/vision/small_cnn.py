"""A small network for images: two 5x5 convolutions, one hidden layer.

Convolutions of 6 and 16 channels without padding, each with ReLU and 2x2
pooling; then 120 hidden units. These are the sizes of LeNet-5 (LeCun et al.
1998) without its second hidden layer: pFedKM (Tang, Guo and Guo 2021) specifies
only "two convolutional and two fully connected layers". 52,202 parameters for
32x32x3 images and 10 classes.
"""

import dataclasses

from tff_algos.core import model as model_lib
from tff_algos.models.factors import decomposition
from tff_algos.models.vision import convolutional

_LAYOUT = convolutional.Layout(
  'small_cnn',
  kernel_size=5,
  channels=(6, 16),
  convolutions_per_pooling=1,
  hidden_sizes=(120,),
  padding='VALID',
)


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
  plain = convolutional.ConvolutionalConfig()
  return convolutional.build(_LAYOUT, plain, input_shape, num_outputs)
