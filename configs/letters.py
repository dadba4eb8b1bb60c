"""FedSoft's letters (paper, section "Experiments"): all but the algorithm.

`configs/{fed_soft,ifca,fed_em}/letters.py` add theirs. At the paper's size:
EMNIST by class, lower and upper case as two source distributions of 26 shared
labels (`four`: each also rotated by 90 degrees counter-clockwise), 100 clients
of 100 to 200 images, the paper's network, 200 rounds.

The small variants need EMNIST letters, which merges the cases, so that the
distributions are upright and rotated letters (`small_four`: all four quarter
turns); 20 clients, 16 rounds.
"""

import ml_collections

from configs import falling_rates, pretrained

LAWS = {
  '10_90': '10:90',
  '30_70': '30:70',
  'linear': 'linear',
  'random': 'random',
  'four': 'random',
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
    'source': {
      'name': 'emnist',
      'options': {
        'folder': 'data/emnist',
        'split': 'byclass',
        'cases_are': 'distributions',
      },
    },
    'distributions': {'kind': 'native'},
    'partition': {
      'law': LAWS.get(variant.removeprefix('small_'), '10:90'),
      'num_clients': 100,
      'num_unseen_clients': 0,
    },
    'sizes': {'law': 'uniform', 'minimum': 100, 'maximum': 200},
    'splits': {
      'validation_ratio': 0.2,
      'test_ratio': 0.2,
      'held_out_fraction': 0.0,
    },
    'seed': 0,
    'num_shards': 4,
  }
  config.model = {
    'name': 'letters_cnn',
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
  if variant == 'four':
    config.dataset.distributions = _rotations(2)
  elif variant == 'smoke':
    _make_smoke(config)
  elif variant.startswith('small_'):
    _make_small(config, 4 if variant == 'small_four' else 2)
  return config


def num_clusters(variant: str) -> int:
  """Returns as many clusters as there are source distributions."""
  return 4 if variant.endswith('four') else 2


def local_training(variant: str) -> dict:
  """Returns the solver: the paper's, or one for a twelfth of the rounds.

  The small variants take steps that are larger so that their sum is about the
  paper's: 75 steps and 16 rounds of 3e-4 against 150 and 200 of 1e-5.
  """
  is_paper = variant in LAWS
  return {
    'num_local_epochs': 1 if variant == 'smoke' else 5,
    'batch_size': 5 if is_paper else 10,
    'optimizer': {'name': 'adam', 'learning_rate': 1e-5 if is_paper else 3e-4},
    'augmentation': 'none',
    'solver': 'descent',
    'weight_decay': 0.0,
    'num_local_steps': 0,
  }


def _rotations(num_views: int) -> dict:
  return {'kind': 'rotations', 'quarter_turns': tuple(range(num_views))}


def _make_small(config, num_views):
  config.dataset.source.options = {
    'folder': 'data/emnist',
    'split': 'letters',
    'cases_are': 'labels',
  }
  config.dataset.distributions = _rotations(num_views)
  config.dataset.partition.num_clients = 20
  config.dataset.num_shards = 1
  config.training.num_rounds = 16
  config.training.evaluation_interval = 4


def _make_smoke(config):
  config.dataset.source = {'name': 'digits', 'options': {}}
  config.dataset.distributions = _rotations(2)
  config.dataset.partition.num_clients = 6
  config.dataset.sizes.update({'minimum': 20, 'maximum': 30})
  config.dataset.splits.held_out_fraction = 0.2
  config.dataset.num_shards = 1
  config.training.num_rounds = 2
  config.training.evaluation_interval = 1
