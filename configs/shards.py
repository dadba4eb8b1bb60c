"""Clients of a few classes in shards: all of the experiment but the algorithm.

`configs/{filter_decomposition,scaffold,fed_dyn,fed_dc}/fashion_mnist.py` add
theirs. It is the setting of Chen and Qiu (2025), arXiv:2503.08652, section 6 and
appendix G, on Fashion-MNIST in the place of CIFAR-10: 100 clients of two or five
classes, 600 images each, ten clients a round, batches of 10, SGD with learning
rate 0.01 and momentum 0.9, five local epochs, LeNet. A client is tested on all
test images of its classes.

They read the original files of a folder: `config.dataset.source.options.folder`,
by default data/fashion_mnist. With the suffix `_tfds` TensorFlow Datasets
downloads the set. `smoke` needs no data: 10 clients share the scikit-learn digits
for 2 rounds, on the smaller network `letters_cnn`.

The paper's rounds are 600; here 200, as its tables of personalized models have.
"""

import ml_collections

from configs import falling_rates, pretrained

_CLASSES = {'two_classes': 2, 'five_classes': 5}
_TFDS = '_tfds'
VARIANTS = (*_CLASSES, *(name + _TFDS for name in _CLASSES), 'smoke')


def get_config(variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one variant without `algorithm` and `name`."""
  if variant not in VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(VARIANTS)}, got {variant!r}'
    )
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.dataset = {
    'source': _source(variant),
    'distributions': {'kind': 'identity'},
    'partition': {
      'law': 'shards',
      'num_clients': 100,
      'options': {
        'shards_per_client': _CLASSES.get(variant.removesuffix(_TFDS), 2),
        'distinct_classes': True,
      },
    },
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.0,
      'held_out_fraction': 0.2 if variant == 'smoke' else 0.0,
      'client_test': 'all_of_classes',
    },
    'seed': 0,
    'num_shards': 4,
  }
  config.model = {
    'name': 'lenet',
    'variant': 'fed_dyn',
    'normalization': 'none',
    'decomposition': {
      'num_atoms': 0,
      'atom_init': 'normal',
      'forward_mode': 'auto',
    },
    'low_rank': {'layers': 'none', 'rank_share': 0.1},
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
  config.training = {
    'num_rounds': 200,
    'evaluation_interval': 10,
    'checkpoint_interval': 50,
    'num_kept_checkpoints': 2,
    'client_states': 'memory',
    'restarts': {'num_restarts': 1, 'num_rounds': 5},
    'dropout_rate': 0.0,
  }
  config.falling_rates = falling_rates.none()
  config.runtime = {
    'name': 'vectorized',
    'vectorized': {
      'clients_per_block': 0,
      'num_parallel_blocks': 0,
      'memory_budget_mib': 0,
    },
    'tff': {'workers': ()},
  }
  if variant == 'smoke':
    _make_smoke(config)
  return config


def cohort_size(variant: str) -> int:
  """Returns how many clients take part in a round."""
  return 3 if variant == 'smoke' else 10


def local_training(variant: str) -> dict:
  """Returns the solver of all algorithms."""
  return {
    'num_local_epochs': 1 if variant == 'smoke' else 5,
    'batch_size': 10,
    'optimizer': {'name': 'sgd', 'learning_rate': 0.01, 'momentum': 0.9},
    'augmentation': 'none',
    'solver': 'descent',
    'weight_decay': 0.0,
    'num_local_steps': 0,
    'unit_dropout_rate': 0.0,
  }


def _source(variant: str) -> dict:
  if variant == 'smoke':
    return {'name': 'digits', 'options': {}}
  if variant.endswith(_TFDS):
    options = {'name': 'fashion_mnist', 'download': True}
    return {'name': 'tfds', 'options': options}
  return {'name': 'idx', 'options': {'folder': 'data/fashion_mnist'}}


def _make_smoke(config):
  config.dataset.partition.num_clients = 10
  config.dataset.num_shards = 1
  del config.model['variant']
  config.model.name = 'letters_cnn'
  config.training.num_rounds = 2
  config.training.evaluation_interval = 1
