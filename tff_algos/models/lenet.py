"""LeNets of federated learning: two 5x5 convolutions without padding.

Each with ReLU and a pooling that halves. "LeNet (McMahan et al. 2017)" is all
that Chen and Qiu (2025) say of theirs; these are the networks of the papers that
they compare with:

  fed_dyn        64 and 64 channels, 384 and 192 hidden units (FedDyn, FedDC)
  fed_rep        64 and 64 channels, 120 and 64 hidden units (FedRep)
  fed_rep_wide   64 and 128 channels, 256 and 128 hidden units; theirs has a
                 dropout of 0.6 after the first of these, which ours leaves out: a
                 model here is a function of weights and examples alone

Parameters for 32x32x3 images, ordinary and with 9 atoms: 797,962 and 729,804
(fed_dyn, 10 classes); 815,332 and 747,174 (100 classes); 307,842 and 239,684
(fed_rep, 10 classes); 1,075,044 and 941,350 (fed_rep_wide, 100 classes).
"""

import dataclasses

from tff_algos.core import checks
from tff_algos.core import model as model_lib
from tff_algos.models import convolutional

_SIZES = {
  'fed_dyn': ((64, 64), (384, 192)),
  'fed_rep': ((64, 64), (120, 64)),
  'fed_rep_wide': ((64, 128), (256, 128)),
}


@dataclasses.dataclass(frozen=True)
class LeNetConfig(convolutional.ConvolutionalConfig):
  """Options of a LeNet, besides those of `ConvolutionalConfig`.

  Attributes:
    variant: `'fed_dyn'`, `'fed_rep'` or `'fed_rep_wide'`.
  """

  variant: str = 'fed_dyn'

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of('variant', self.variant, _SIZES)


def build_lenet(
  config: LeNetConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the network for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image with sides of at least 16.
  """
  channels, hidden_sizes = _SIZES[config.variant]
  layout = convolutional.Layout(
    'lenet',
    kernel_size=5,
    channels=channels,
    convolutions_per_pooling=1,
    hidden_sizes=hidden_sizes,
    padding='VALID',
  )
  return convolutional.build(layout, config, input_shape, num_outputs)
