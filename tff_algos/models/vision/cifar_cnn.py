"""FedSoft's CIFAR-10 network: six 3x3 convolutions and three dense layers.

The paper gives the channels, the ReLU, a pooling after every second
convolution, and "1024x512" for the dense layers. Three poolings leave
4 * 4 * 256 = 4096 features of a 32x32 image, so we read "1024x512" as two
hidden layers of 1024 and 512 units: 5,851,338 parameters for 10 classes.
Kernels are 3x3 with padding 1, and there is no normalization, as the paper
mentions none.
"""

from tff_algos.core import model as model_lib
from tff_algos.models.vision import convolutional

_LAYOUT = convolutional.Layout(
  'cifar_cnn',
  kernel_size=3,
  channels=(32, 64, 128, 128, 256, 256),
  convolutions_per_pooling=2,
  hidden_sizes=(1024, 512),
)


def build_cifar_cnn(
  config: convolutional.ConvolutionalConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Returns the network for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image whose sides are multiples of 8.
  """
  return convolutional.build(_LAYOUT, config, input_shape, num_outputs)
