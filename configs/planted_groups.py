"""Shared config of PPFL's clients in planted groups.

`configs/fed_avg/planted_groups.py` and others extend it. These are the pathological
data of Di, Yang, Ye and Chang (arXiv 2310.14337):

  mnist      100 clients in four groups of 2, 2, 3 and 3 digits, whose 70,000 images
             are shared evenly in each group; a perceptron of 128 units, 101,770
             parameters
  cifar10    80 clients: 27 with cars and trucks, 27 with planes and ships, 26 with
             animals, as in the authors' release (the paper's text has 26, 26 and 27,
             which make 79); MobileNet-v2, 2,236,682 parameters
  synthetic  300 clients that mix three logistic models; logistic regression, 151
             parameters; each client has 5,000 additional test examples
  synthetic_80_20  the same with a fifth of each client's examples as its test
             examples, as in the paper's text
  mnist_falling ...  `mnist`, `cifar10`, `synthetic` and `synthetic_80_20` with clients'
             learning rates that are divided by ten after rounds 100 and 150, as in the
             paper's code
  mnist_standardized_falling  the same with pixels of mean 0 and variance 1, as there

All clients take part in each of 200 rounds: one epoch in batches of 128, SGD with
momentum and weight decay. Images are read from the original files of a folder,
data/mnist or data/cifar10 (the binary version):
`config.dataset.source.options.folder`. 80 % of a client's images are training examples.
The dataset contains each client's group, and on `synthetic` its mixture, so a run
reports how well memberships recover them.

Deviations from the paper and its code: pixels are values from 0 to 1, standardized only
in the variant of that name; MobileNet-v2 is initialized at random, with group
normalization and without dropout; momentum is reset in every round, but with
`--config.algorithm.local_training.keeps_optimizer_state=True`; and the learning
rate decays only in the variants `*_falling`.
"""

import types
from collections.abc import Mapping

import ml_collections

from configs import base

_FALLING = '_falling'
_STANDARDIZED = '_standardized'
_DATA = ('mnist', 'cifar10', 'synthetic', 'synthetic_80_20')
VARIANTS = (
  *_DATA,
  'smoke',
  *(f'{data}{_FALLING}' for data in _DATA),
  f'mnist{_STANDARDIZED}{_FALLING}',
)
# As in PPFL's release, for all methods.
WEIGHT_DECAY = 5e-4
_LEARNING_RATES = types.MappingProxyType({'cifar10': 0.03})
# Planes are class 0, cars 1, ships 8 and trucks 9.
_CIFAR10_GROUPS = ((1, 9), (0, 8), (2, 3, 4, 5, 6, 7))


def get_config(
  algorithm: str,
  variant: str,
  learning_rates: Mapping[str, float] = _LEARNING_RATES,
) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`.

  Args:
    algorithm: Name of the algorithm.
    variant: Data, possibly with decaying learning rates.
    learning_rates: data -> learning rate of clients; 0.1 for other data.
  """
  base.check(variant, VARIANTS)
  data = data_of(variant)
  is_smoke, is_synthetic = data == 'smoke', data.startswith('synthetic')
  if is_synthetic:
    config = _mixtures(algorithm, data)
  else:
    config = _images(algorithm, data)
  config.dataset.update(
    splits={'held_out_fraction': 0.0, 'split_by': 'client'},
    seed=12345,
    num_shards=1 if is_smoke else 4,
  )
  config.training.update(
    num_rounds=2 if is_smoke else 200,
    evaluation_interval=1 if is_smoke else 5,
    checkpoint_interval=50,
  )
  if _STANDARDIZED in variant:
    # Of MNIST's training images, as in the release.
    config.dataset.update(pixel_mean=0.1307, pixel_std=0.3081)
  if variant.endswith(_FALLING):
    # As in PPFL's release, for all methods.
    config.lr_schedule.after_rounds = (100, 150)
  for training in base.trainings(config):
    training.update(
      batch_size=128,
      optimizer={
        'learning_rate': learning_rates.get(data, 0.1),
        'momentum': 0.9,
      },
      weight_decay=WEIGHT_DECAY,
    )
  return config


def data_of(variant: str) -> str:
  """Returns the variant of the same clients, pixels and rates as they are."""
  return variant.removesuffix(_FALLING).removesuffix(_STANDARDIZED)


def num_groups(variant: str) -> int:
  """Returns the number of groups of clients, or of mixed models."""
  return 3 if variant.startswith(('cifar10', 'synthetic')) else 4


def _images(algorithm, data):
  is_cifar = data == 'cifar10'
  config = base.experiment(
    algorithm,
    model='mobilenet_v2' if is_cifar else 'mlp',
    source={'cifar10': 'cifar', 'smoke': 'digits'}.get(data, 'idx'),
    law='class_groups',
  )
  if not is_cifar:
    config.model.hidden_sizes = (128,)
  if data != 'smoke':
    config.dataset.source.options.folder = f'data/{data}'
    config.dataset.splits.pool_test_split = True
  config.dataset.partition.update(
    num_clients={'cifar10': 80, 'smoke': 12}.get(data, 100),
    options={'class_groups': _CIFAR10_GROUPS}
    if is_cifar
    else {'group_sizes': (2, 2, 3, 3)},
  )
  config.dataset.splits.test_ratio = 0.25
  return config


def _mixtures(algorithm, data):
  config = base.experiment(
    algorithm,
    model='logistic_regression',
    source='logistic_mixture',
    law='natural',
  )
  config.model.reference_class = True
  config.dataset.distributions.kind = 'native'
  config.dataset.partition.num_clients = 300
  if data == 'synthetic':
    config.dataset.source.options.num_test_examples = 5000
    config.dataset.splits.client_test = 'dealt'
  else:
    config.dataset.source.options.num_test_examples = 0
    config.dataset.splits.test_ratio = 0.25
  return config
