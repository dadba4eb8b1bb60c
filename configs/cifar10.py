"""FedSoft's CIFAR-10 (paper, section "Experiments"): all but the algorithm.

`configs/{fed_soft,ifca,fed_em}/cifar10.py` add theirs. At the paper's size: 20
clients that share the 50,000 training images (the paper does not say how many
each has; 2,500), upright and rotated by 90 degrees counter-clockwise, six
convolutions, 200 rounds.

The small variants have clients of 100 to 200 images, the smaller network
`letters_cnn` and 16 rounds.
"""

import ml_collections

from configs import falling_rates, pretrained

LAWS = {
  '10_90': '10:90',
  '30_70': '30:70',
  'linear': 'linear',
  'random': 'random',
}
VARIANTS = (*LAWS, *(f'small_{name}' for name in LAWS), 'smoke')


def get_config(variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one variant without `algorithm` and `name`."""
  if variant not in VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(VARIANTS)}, got {variant!r}'
    )
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.dataset = {
    'source': {'name': 'cifar', 'options': {'folder': 'data/cifar10'}},
    'distributions': {'kind': 'rotations', 'quarter_turns': (0, 1)},
    'partition': {
      'law': LAWS.get(variant.removeprefix('small_'), '10:90'),
      'num_clients': 20,
      'num_unseen_clients': 0,
    },
    'sizes': {'law': 'equal'},
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.0,
      'held_out_fraction': 0.0,
    },
    'seed': 0,
    'num_shards': 4,
  }
  config.model = {
    'name': 'cifar_cnn',
    'normalization': 'none',
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
  config.training = {
    'num_rounds': 200,
    'evaluation_interval': 10,
    'checkpoint_interval': 10,
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
  elif variant.startswith('small_'):
    _make_small(config)
  return config


def local_training(variant: str) -> dict:
  """Returns the solver: the paper's, or fewer epochs of smaller batches."""
  is_paper = variant in LAWS
  return {
    'num_local_epochs': {'smoke': 1}.get(variant, 10 if is_paper else 3),
    'batch_size': 64 if is_paper else 16,
    'optimizer': {'name': 'adam', 'learning_rate': 5e-4},
    'augmentation': 'none' if variant == 'smoke' else 'crop_and_flip',
    'solver': 'descent',
    'weight_decay': 0.0,
    'num_local_steps': 0,
  }


def _make_small(config):
  config.dataset.sizes = {'law': 'uniform', 'minimum': 100, 'maximum': 200}
  config.dataset.splits.update({'validation_ratio': 0.2, 'test_ratio': 0.2})
  config.dataset.num_shards = 1
  config.model.name = 'letters_cnn'
  config.training.num_rounds = 16
  config.training.evaluation_interval = 4


def _make_smoke(config):
  _make_small(config)
  config.dataset.source = {'name': 'digits', 'options': {}}
  config.dataset.partition.num_clients = 6
  config.dataset.sizes.update({'minimum': 20, 'maximum': 30})
  config.dataset.splits.held_out_fraction = 0.2
  config.training.num_rounds = 2
  config.training.evaluation_interval = 1
