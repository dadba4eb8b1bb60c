r"""PPFL's synthetic data: 300 clients that mix three logistic models.

  python -m binaries.run --config=configs/ppfl/synthetic.py \
    --workdir=runs/ppfl_synthetic

Variants: `ppfl1` mixes outputs and `ppfl2` parameters, which for this model is
the same function; `probabilities` mixes probabilities (Eq. 11); `released` follows
the authors' release: theta first, then an epoch of mirror steps on batches, all
clients weighed alike; `random_block` is Algorithm 1; `smoke` is `ppfl1` with 12
clients, 12 features and 3 rounds. The full size has not been run to its end.
"""

import ml_collections

_VARIANTS = (
  'ppfl1',
  'ppfl2',
  'probabilities',
  'released',
  'random_block',
  'smoke',
)


def get_config(variant: str = 'ppfl1') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  if variant not in _VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(_VARIANTS)}, got {variant!r}'
    )
  config = ml_collections.ConfigDict()
  config.name = 'PPFL on mixtures of logistic models'
  config.seed = 0
  config.dataset = {
    'source': {
      'name': 'logistic_mixture',
      'options': {
        'num_clients': 300,
        'num_components': 3,
        'num_features': 150,
        'concentration': 0.4,
        'noise': 0.1,
        'min_examples': 50,
        'max_examples': 1000,
      },
    },
    'distributions': {'kind': 'native'},
    'partition': {
      'law': 'natural',
      'num_clients': 300,
      'num_unseen_clients': 0,
    },
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.2,
      'held_out_fraction': 0.0,
      'split_by': 'client',
    },
    'seed': 12345,
    'num_shards': 4,
  }
  config.model = {
    'name': 'logistic_regression',
    'use_bias': True,
    'compute_dtype': 'float32',
  }
  config.algorithm = {
    'name': 'ppfl',
    'num_clusters': 3,
    'schedule': 'alternating',
    'cohort_size': 0,
    'canonical': ('all',),
    'mixing': 'outputs',
    'weighting': 'examples',
    'shared_prob': 0.5,
    'membership': {
      'learning_rate': 0.9,
      'num_epochs': 1,
      'batch_size': 0,
      'gradient_weight': 'none',
      'floor': 1e-6,
      'num_newcomer_steps': 100,
      'newcomer_learning_rate': 1.0,
    },
    'laplacian': {
      'weight': 1e-5,
      'affinity': 'cosine',
      'form': 'laplacian',
      'count_noise': 0.0,
    },
    'decay': {'after_rounds': (100, 150), 'factor': 0.1},
    'num_joint_rounds': 0,
    'stationarity_interval': 0,
    'loss_scale': 1.0,
    'local_training': {
      'num_local_epochs': 1,
      'batch_size': 128,
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1, 'momentum': 0.9},
      'augmentation': 'none',
      'solver': 'descent',
      'weight_decay': 5e-4,
    },
  }
  config.training = {
    'num_rounds': 200,
    'evaluation_interval': 10,
    'checkpoint_interval': 50,
    'client_states': 'memory',
    'restarts': {'num_restarts': 1, 'num_rounds': 5},
    'dropout_rate': 0.0,
  }
  config.runtime = {
    'name': 'vectorized',
    'vectorized': {
      'clients_per_block': 0,
      'num_parallel_blocks': 0,
      'memory_budget_mib': 0,
    },
    'tff': {'workers': ()},
  }
  _vary(config, variant)
  return config


def _vary(config, variant):
  """Changes what a variant has of its own."""
  algorithm = config.algorithm
  if variant == 'ppfl2':
    algorithm.mixing = 'parameters'
  elif variant == 'probabilities':
    algorithm.mixing = 'probabilities'
  elif variant == 'released':
    algorithm.schedule = 'shared_first'
    algorithm.weighting = 'uniform'
    algorithm.membership.batch_size = 128
    algorithm.laplacian.form = 'degree'
  elif variant == 'random_block':
    algorithm.schedule = 'random_block'
    algorithm.decay.after_rounds = ()
  elif variant == 'smoke':
    config.dataset.source.options.update(
      {'num_clients': 12, 'num_features': 12, 'max_examples': 200}
    )
    config.dataset.partition.update(
      {'num_clients': 10, 'num_unseen_clients': 2}
    )
    config.dataset.num_shards = 1
    config.training.update({'num_rounds': 3, 'evaluation_interval': 1})
