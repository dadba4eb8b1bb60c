"""LeNet variants of federated learning papers.

5x5 convolutions without padding unless stated otherwise, each with an
activation and 2x2 pooling. Chen and Qiu (2025) specify only "LeNet (McMahan et
al. 2017)"; these are the networks of the papers that they compare with:

  fed_dyn        64 and 64 channels, 384 and 192 hidden units (FedDyn, FedDC)
  fed_rep        64 and 64 channels, 120 and 64 hidden units (FedRep)
  fed_rep_wide   64 and 128 channels, 256 and 128 hidden units; dropout after
                 the first of these, at `unit_dropout_rate=0.6` (FedRep)
  fed_pac        16, 32 and 64 channels of 5x5, 5x5 and 3x3, the last two with a
                 border of one zero; 128 hidden units; leaky ReLU (FedPAC)

Parameters for 32x32x3 images, ordinary and with 9 atoms: 797,962 and 729,804
(fed_dyn, 10 classes); 815,332 and 747,174 (100 classes); 307,842 and 239,684
(fed_rep, 10 classes); 1,075,044 and 941,350 (fed_rep_wide, 100 classes);
107,690 and 99,261 (fed_pac, 10 classes).
"""

import dataclasses
import functools

from tff_algos.core import checks
from tff_algos.core import model as model_lib
from tff_algos.models.vision import convolutional

_LAYOUT = functools.partial(
  convolutional.Layout,
  'lenet',
  kernel_sizes=(5, 5),
  convolutions_per_pooling=1,
  padding='VALID',
)
_LAYOUTS = {
  'fed_dyn': _LAYOUT(channels=(64, 64), hidden_sizes=(384, 192)),
  'fed_rep': _LAYOUT(channels=(64, 64), hidden_sizes=(120, 64)),
  'fed_rep_wide': _LAYOUT(
    channels=(64, 128), hidden_sizes=(256, 128), drops_after=(0,)
  ),
  'fed_pac': _LAYOUT(
    channels=(16, 32, 64),
    hidden_sizes=(128,),
    kernel_sizes=(5, 5, 3),
    borders=(0, 1, 1),
    negative_slope=0.01,
  ),
}


@dataclasses.dataclass(frozen=True)
class LeNetConfig(convolutional.ConvolutionalConfig):
  """Options of a LeNet, besides those of `ConvolutionalConfig`.

  Attributes:
    variant: `'fed_dyn'`, `'fed_rep'`, `'fed_rep_wide'` or `'fed_pac'`.
  """

  variant: str = 'fed_dyn'

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of('variant', self.variant, _LAYOUTS)


def build_lenet(
  config: LeNetConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the network for images `[height, width, channels]`.

  Raises:
    ConfigError: If the input is no image with sides of at least 16.
  """
  return convolutional.build(
    _LAYOUTS[config.variant], config, input_shape, num_outputs
  )
