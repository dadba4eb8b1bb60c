"""PPFL's clients in planted groups: all of the experiment but the algorithm.

`configs/fed_avg/planted_groups.py` and others add theirs. They are the pathological
data of Di, Yang, Ye and Chang (arXiv 2310.14337):

  mnist      100 clients in four groups of 2, 2, 3 and 3 digits, whose 70,000 images
             are shared evenly in each group; a perceptron of 128 units, 101,770
             parameters
  cifar10    80 clients: 27 with cars and trucks, 27 with planes and ships, 26 with
             animals; MobileNet-v2, 2,236,682 parameters
  synthetic  300 clients that mix three logistic models; logistic regression, 151
             parameters; 5,000 examples more of each client are its test
  synthetic_80_20  the same without these; a fifth of each client's examples is its
             test, as the paper says
  mnist_alike  the images of `mnist` and no groups: every client has all digits
  mnist_falling ...  `mnist`, `cifar10`, `synthetic` and `synthetic_80_20` with clients'
             learning rates that are divided by ten after rounds 100 and 150, as in the
             paper's code

All clients take part in each of 200 rounds: one epoch in batches of 128, SGD with
momentum and weight decay. Images are read from the original files of a folder,
data/mnist or data/cifar10 (the binary version):
`config.dataset.source.options.folder`. 80 % of a client's images train. Which group a
client is of, and on `synthetic` its mixture, are in the dataset, so a run reports how
well memberships recover them.

What differs from the paper and its code: pixels are values from 0 to 1, and not
standardized; MobileNet-v2 starts at random, normalizes by groups and drops no
features; the momentum starts anew in every round; and the learning rate falls in the
variants alone that say so.
"""

import ml_collections

from configs import falling_rates, pretrained, robustness

_FALLING = '_falling'
VARIANTS = (
  'mnist',
  'mnist_alike',
  'cifar10',
  'synthetic',
  'synthetic_80_20',
  'smoke',
  *(
    f'{data}{_FALLING}'
    for data in ('mnist', 'cifar10', 'synthetic', 'synthetic_80_20')
  ),
)
# Of PPFL's release, for all methods.
WEIGHT_DECAY = 5e-4
_NUM_CLIENTS = {'cifar10': 80, 'smoke': 12}
# Planes are class 0, cars 1, ships 8 and trucks 9.
_GROUPS = {
  'cifar10': {'class_groups': ((1, 9), (0, 8), (2, 3, 4, 5, 6, 7))},
  'mnist_alike': {'group_sizes': (10,)},
}


def get_config(variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one variant without `algorithm` and `name`."""
  if variant not in VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(VARIANTS)}, got {variant!r}'
    )
  data = data_of(variant)
  is_smoke = data == 'smoke'
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.dataset = _dataset(data)
  config.model = {
    **_model(data),
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
  config.training = {
    'num_rounds': 2 if is_smoke else 200,
    'evaluation_interval': 1 if is_smoke else 5,
    'checkpoint_interval': 50,
    'client_states': 'memory',
    'restarts': {'num_restarts': 1, 'num_rounds': 5},
    'dropout_rate': 0.0,
  }
  config.falling_rates = falling_rates.none()
  if data != variant:
    fall_as_released(config)
  config.runtime = {
    'name': 'vectorized',
    'vectorized': {
      'clients_per_block': 0,
      'num_parallel_blocks': 0,
      'memory_budget_mib': 0,
    },
    'tff': {'workers': ()},
  }
  config.attack = robustness.attack()
  return config


def data_of(variant: str) -> str:
  """Returns the variant of the same clients whose learning rates stay."""
  return variant.removesuffix(_FALLING)


def fall_as_released(config: ml_collections.ConfigDict) -> None:
  """Lets learning rates fall as in PPFL's release, for all methods."""
  config.falling_rates.after_rounds = (100, 150)


def num_groups(variant: str) -> int:
  """Returns how many groups of clients, or mixed models, there are.

  Of `mnist_alike`, with its one group, as many as of `mnist`.
  """
  return 3 if variant.startswith(('cifar10', 'synthetic')) else 4


def local_training(learning_rate: float) -> dict:
  """Returns one epoch of the solver that all methods share."""
  return {
    'num_local_epochs': 1,
    'batch_size': 128,
    'optimizer': {
      'name': 'sgd',
      'learning_rate': learning_rate,
      'momentum': 0.9,
    },
    'augmentation': 'none',
    'solver': 'descent',
    'weight_decay': WEIGHT_DECAY,
    'num_local_steps': 0,
  }


def _dataset(variant: str) -> dict:
  dataset = {
    'source': _source(variant),
    'distributions': {'kind': 'identity'},
    'partition': {
      'law': 'class_groups',
      'num_clients': _NUM_CLIENTS.get(variant, 100),
      'options': _GROUPS.get(variant, {'group_sizes': (2, 2, 3, 3)}),
    },
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.25,
      'held_out_fraction': 0.0,
      'split_by': 'client',
      'pool_test_split': _has_images(variant),
      'client_test': 'ratio',
    },
    'seed': 12345,
    'num_shards': 1 if variant == 'smoke' else 4,
  }
  if variant.startswith('synthetic'):
    dataset['distributions'] = {'kind': 'native'}
    dataset['partition'] = {'law': 'natural', 'num_clients': 300}
  if variant == 'synthetic':
    dataset['splits'].update({'test_ratio': 0.0, 'client_test': 'dealt'})
  return dataset


def _has_images(variant: str) -> bool:
  return variant in ('mnist', 'mnist_alike', 'cifar10')


def _source(variant: str) -> dict:
  if variant == 'smoke':
    return {'name': 'digits', 'options': {}}
  if _has_images(variant):
    folder = variant.removesuffix('_alike')
    name = 'cifar' if folder == 'cifar10' else 'idx'
    return {'name': name, 'options': {'folder': f'data/{folder}'}}
  num_test_examples = 5000 if variant == 'synthetic' else 0
  return {
    'name': 'logistic_mixture',
    'options': {'num_test_examples': num_test_examples},
  }


def _model(variant: str) -> dict:
  if variant == 'cifar10':
    return {'name': 'mobilenet_v2', 'normalization': 'group'}
  if variant.startswith('synthetic'):
    return {
      'name': 'logistic_regression',
      'use_bias': True,
      'reference_class': True,
    }
  return {'name': 'mlp', 'hidden_sizes': (128,), 'normalization': 'none'}
