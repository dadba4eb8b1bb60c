"""Networks of papers: FedSoft's letters_cnn and cifar_cnn, pFedKM's small_cnn.

Each convolution and each dense layer but the last is followed by ReLU. The
builders raise what `convolutional.build` raises.
"""

from tff_algos.core import model as model_lib
from tff_algos.models.factors import decomposition
from tff_algos.models.vision import convolutional


def build_small_cnn(
  config: decomposition.DecomposableConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Returns a small network: two 5x5 convolutions, one hidden layer.

  Without padding, as in LeNet-5 (LeCun et al. 1998), whose sizes it has without
  the second hidden layer: pFedKM (Tang, Guo and Guo 2021) specifies only "two
  convolutional and two fully connected layers". 52,202 parameters for 32x32x3
  images and 10 classes.
  """
  del config
  layout = convolutional.Layout(
    'small_cnn',
    kernel_sizes=(5, 5),
    channels=(6, 16),
    convolutions_per_pooling=1,
    hidden_sizes=(120,),
    padding='VALID',
  )
  plain = convolutional.ConvolutionalConfig()
  return convolutional.build(layout, plain, input_shape, num_outputs)


def build_letters_cnn(
  config: convolutional.ConvolutionalConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Returns FedSoft's letters network: two 5x5 convolutions, one hidden layer.

  The paper gives the kernel size, padding, pooling and the hidden layer, and
  its authors' code (github.com/ycruan/FedSoft) the channels: 1,671,578
  parameters for 28x28 images and 26 classes. The ReLU after each convolution is
  that of FedAvg's network, which has the same layers; in the authors' code the
  only activations are a ReLU and a softmax before the loss, which
  `docs/reproduction/fed_soft.md` compares.
  """
  layout = convolutional.Layout(
    'letters_cnn',
    kernel_sizes=(5, 5),
    channels=(32, 64),
    convolutions_per_pooling=1,
    hidden_sizes=(512,),
  )
  return convolutional.build(layout, config, input_shape, num_outputs)


def build_cifar_cnn(
  config: convolutional.ConvolutionalConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Returns FedSoft's CIFAR-10 network: six convolutions, two hidden layers.

  The paper gives the channels, the ReLU, a pooling after every second
  convolution, and "1024x512" for the dense layers. Three poolings leave
  4 * 4 * 256 = 4096 features of a 32x32 image, so we read "1024x512" as two
  hidden layers of 1024 and 512 units, as its authors' code has them: 5,851,338
  parameters for 10 classes.
  Kernels are 3x3 with padding 1, and there is no normalization, as the paper
  mentions none.
  """
  layout = convolutional.Layout(
    'cifar_cnn',
    kernel_sizes=(3,) * 6,
    channels=(32, 64, 128, 128, 256, 256),
    convolutions_per_pooling=2,
    hidden_sizes=(1024, 512),
  )
  return convolutional.build(layout, config, input_shape, num_outputs)
