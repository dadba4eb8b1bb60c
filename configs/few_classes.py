"""The clients of Chen and Qiu (2025), arXiv:2503.08652: all but the algorithm.

`configs/*/global_models.py` (their Table 1 and Figures 2a to 2c) and
`configs/*/personal_models.py` (Tables 2 and 3) add theirs. A variant names the data
and how many classes a client has:

  variant                clients    network, global       network, personal
  cifar10_2, _5          100        LeNet of FedDyn       LeNet of FedRep
  cifar100_5, _20        100        LeNet of FedDyn       the wide one of FedRep
  tiny_imagenet_20, _50  20; 1000   ResNet18              the wide one of FedRep
  fashion_mnist_2, _5    100        LeNet of FedDyn       LeNet of FedRep
  cifar10_small,         as cifar10_5 and fashion_mnist_2, but LeNet of FedPAC, 20
  fashion_mnist_small    rounds of 2 local epochs, and the clients' tests dealt as
                         their training is

A tenth of the clients take part in a round; batches of 10, SGD with learning rate
0.01 and momentum 0.9. Global models: 5 local epochs, 600 rounds, 10 for Tiny-ImageNet.
Personal models: 10 local epochs, 200 rounds. A client is tested on all test images of
its classes. They read the original files of `config.dataset.source.options.folder`,
by default data/cifar10, data/cifar100, data/tiny-imagenet-200 and
data/fashion_mnist; the last is not in the paper, but smaller.

Readings, where the paper is silent: the networks, the wide one's dropout of 0.6 (as in
FedRep's code), no augmentation, the clients' tests.
Its ResNet18 is pre-trained on ImageNet; ours starts at random, with group
normalization, unless config.model.pretrained names a file (docs/pretrained.md).

`smoke` needs no data: 10 clients share the scikit-learn digits for 2 rounds, on the
smaller network `letters_cnn`.
"""

import ml_collections

from configs import shards

_FASHION_MNIST = 'fashion_mnist_'
_CLASSES = {
  'cifar10_2': 2,
  'cifar10_5': 5,
  'cifar100_5': 5,
  'cifar100_20': 20,
  'tiny_imagenet_20': 20,
  'tiny_imagenet_50': 50,
  'fashion_mnist_2': 2,
  'fashion_mnist_5': 5,
  'cifar10_small': 5,
  'fashion_mnist_small': 2,
}
VARIANTS = (*_CLASSES, 'smoke')


def get_config(variant: str, *, personal: bool) -> ml_collections.ConfigDict:
  """Returns the config of one variant without `algorithm` and `name`.

  Args:
    variant: One of `VARIANTS`.
    personal: Whether it is for the tables of personal models.
  """
  if variant not in VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(VARIANTS)}, got {variant!r}'
    )
  if variant == 'smoke':
    return shards.get_config('smoke')
  config = shards.get_config('two_classes')
  if not variant.startswith(_FASHION_MNIST):
    config.dataset.source = _source(variant)
  config.dataset.partition.num_clients = 10 * cohort_size(variant, personal)
  config.dataset.partition.options.shards_per_client = _CLASSES[variant]
  config.training.num_rounds = 200 if personal else 600
  if personal:
    is_wide = _has_many_classes(variant)
    config.model.variant = 'fed_rep_wide' if is_wide else 'fed_rep'
  elif variant.startswith('tiny'):
    del config.model['variant']
    config.model.name = 'resnet18'
    config.model.normalization = 'group'
    config.model.stem = 'large'
    config.training.num_rounds = 10
    config.training.evaluation_interval = 1
  if _is_small(variant):
    config.model.variant = 'fed_pac'
    config.dataset.splits.client_test = 'dealt'
    config.training.num_rounds = 20
  return config


def cohort_size(variant: str, personal: bool) -> int:
  """Returns how many clients take part in a round."""
  if variant == 'smoke':
    return shards.cohort_size(variant)
  if variant.startswith('tiny'):
    return 100 if personal else 2
  return 10


def local_training(variant: str, personal: bool) -> dict:
  """Returns the solver of all algorithms."""
  training = shards.local_training(variant)
  if _is_small(variant):
    training['num_local_epochs'] = 2
  elif personal and variant != 'smoke':
    training['num_local_epochs'] = 10
    if _has_many_classes(variant):
      training['unit_dropout_rate'] = 0.6
  return training


def _has_many_classes(variant: str) -> bool:
  return not variant.startswith(('cifar10_', _FASHION_MNIST))


def _is_small(variant: str) -> bool:
  return variant.endswith('_small')


def _source(variant: str) -> dict:
  if variant.startswith('tiny'):
    options = {'folder': 'data/tiny-imagenet-200'}
    return {'name': 'tiny_imagenet', 'options': options}
  dataset = variant.partition('_')[0]
  return {
    'name': 'cifar',
    'options': {'folder': f'data/{dataset}', 'dataset': dataset},
  }
