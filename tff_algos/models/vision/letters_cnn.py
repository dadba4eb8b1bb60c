"""FedSoft's letters network: two 5x5 convolutions and 512 hidden units.

The paper gives the kernel size, padding, pooling and the hidden layer. The
channel counts (32 and 64) and the ReLU after each convolution are those of
FedAvg's network, which has the same layers: 1,671,578 parameters for 28x28
images and 26 classes.
"""

from tff_algos.core import model as model_lib
from tff_algos.models.vision import convolutional

_LAYOUT = convolutional.Layout(
  'letters_cnn',
  kernel_size=5,
  channels=(32, 64),
  convolutions_per_pooling=1,
  hidden_sizes=(512,),
)


def build_letters_cnn(
  config: convolutional.ConvolutionalConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Returns the network for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image whose sides are multiples of 4.
  """
  return convolutional.build(_LAYOUT, config, input_shape, num_outputs)
