"""Shared config of the clients of Chen and Qiu (2025), arXiv:2503.08652.

`configs/*/global_models.py` (their Table 1 and Figures 2a to 2c) and
`configs/*/personal_models.py` (Tables 2 and 3) extend it. A variant names the data
and the number of classes per client:

  variant                clients    network, global       network, personal
  cifar10_2, _5          100        LeNet of FedDyn       LeNet of FedRep
  cifar100_5, _20        100        LeNet of FedDyn       wide LeNet of FedRep
  tiny_imagenet_20, _50  20; 1000   ResNet18              wide LeNet of FedRep
  fashion_mnist_2, _5    100        LeNet of FedDyn       LeNet of FedRep
  cifar10_small,         as cifar10_5 and fashion_mnist_2, but LeNet of FedPAC, 20
  fashion_mnist_small    rounds of 2 local epochs, and test examples are dealt to
                         clients like training examples

A tenth of the clients take part in a round; batches of 10, SGD with learning rate
0.01 and momentum 0.9. Global models: 5 local epochs, 600 rounds, 10 for Tiny-ImageNet.
Personal models: 10 local epochs, 200 rounds. A client is tested on all test images of
its classes. They read the original files of `config.dataset.source.options.folder`,
by default data/cifar10, data/cifar100, data/tiny-imagenet-200 and
data/fashion_mnist; the last is not in the paper, but smaller.

Readings where the paper is silent: the networks, their initialization (Glorot's
variance of plain kernels, He's of products of factors), dropout of 0.6 in the wide
LeNet (as in FedRep's code), no augmentation, the clients' test examples.
The code that the paper adapts, FedPAC's (github.com/JianXu95/FedPAC), standardizes,
crops and flips images and decays weights by 0.0005, at a momentum of 0.5; FedDC's code
(github.com/gaoliang13/FedDC) decays by 0.001 and clips gradients to a norm of 10. Nothing
of this is in these configs; the options are in docs/reproduction/filter_decomposition.md.
The paper's ResNet18 is pretrained on ImageNet; ours is initialized at random, with
group normalization, unless config.model.pretrained names a file (docs/pretrained.md).

`smoke` needs no data: 10 clients share the scikit-learn digits for 2 rounds, on the
smaller network `letters_cnn`.
"""

import ml_collections

from configs import base

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


def get_config(
  algorithm: str, variant: str, *, personal: bool
) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`.

  Args:
    algorithm: Name of the algorithm.
    variant: Data and classes.
    personal: Whether it is for the tables of personal models.
  """
  base.check(variant, VARIANTS)
  if variant == 'smoke':
    return _smoke(algorithm)
  is_tiny, is_small = variant.startswith('tiny'), variant.endswith('_small')
  source, source_options = _source(variant)
  model = 'resnet18' if is_tiny and not personal else 'lenet'
  config = _shards(algorithm, source=source, model=model)
  config.dataset.source.options.update(source_options)
  config.dataset.partition.options.shards_per_client = _CLASSES[variant]
  config.training.num_rounds = 200 if personal else 600
  trained = _trained(config)
  if personal:
    is_wide = not variant.startswith(('cifar10_', _FASHION_MNIST))
    config.model.variant = 'fed_rep_wide' if is_wide else 'fed_rep'
    trained.local_training.num_local_epochs = 10
    trained.local_training.unit_dropout_rate = 0.6 if is_wide else 0.0
  elif is_tiny:
    config.model.stem = 'large'
    config.training.update(num_rounds=10, evaluation_interval=1)
  if is_tiny:
    trained.cohort_size = 100 if personal else 2
    config.dataset.partition.num_clients = 10 * trained.cohort_size
  if is_small:
    config.model.variant = 'fed_pac'
    config.dataset.splits.client_test = 'dealt'
    config.training.num_rounds = 20
    trained.local_training.num_local_epochs = 2
  return config


def _source(variant):
  if variant.startswith('tiny'):
    return 'tiny_imagenet', {'folder': 'data/tiny-imagenet-200'}
  if variant.startswith(_FASHION_MNIST):
    return 'idx', {'folder': 'data/fashion_mnist'}
  dataset = variant.partition('_')[0]
  return 'cifar', {'folder': f'data/{dataset}', 'dataset': dataset}


def _shards(algorithm, *, source, model):
  """Returns a config with 100 clients of two classes, ten of which train per round."""
  config = base.experiment(algorithm, model=model, source=source, law='shards')
  config.dataset.update(
    partition={'num_clients': 100, 'options': {'shards_per_client': 2}},
    splits={'held_out_fraction': 0.0, 'client_test': 'all_of_classes'},
    num_shards=4,
  )
  _trained(config).local_training.update(
    num_local_epochs=5, optimizer={'learning_rate': 0.01, 'momentum': 0.9}
  )
  config.training.update(evaluation_interval=10, checkpoint_interval=50)
  return config


def _smoke(algorithm):
  config = _shards(algorithm, source='digits', model='letters_cnn')
  config.dataset.partition.num_clients = 10
  config.dataset.splits.held_out_fraction = 0.2
  config.dataset.num_shards = 1
  _trained(config).cohort_size = 3
  _trained(config).local_training.num_local_epochs = 1
  config.training.update(num_rounds=2, evaluation_interval=1)
  return config


def _trained(config):
  """Returns the section of options of the algorithm, or of its host if it has one."""
  return config.algorithm.get('host', config.algorithm)
