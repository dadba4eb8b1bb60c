r"""pFedMe on pFedKM's synthetic data: 60 clients in three groups.

  python -m binaries.run --config=configs/pfedme/synthetic.py:logistic \
    --workdir=runs/pfedme_synthetic

The same data, models and constants as configs/pfedkm/synthetic.py, with one
global model: the baseline of Tang, Guo and Guo (2021), Table 2, which reports
79.21 % +- 0.02 for the regression and 76.12 % +- 0.01 for the network (one hidden
layer of 128).

One run of `logistic` with seed 0, test accuracy of all examples: personalized
models 79.9 %, the global model 26.5 %, local models (`kept='local'`) 64.5 %; the
majority class of each client 80.2 %.

Variants: `logistic`, `network`, and `smoke` (12 clients, 3 rounds).
"""

import ml_collections

from configs import falling_rates, pretrained, robustness


def get_config(variant: str = 'logistic') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  if variant not in ('logistic', 'network', 'smoke'):
    raise ValueError(
      f'variant must be one of logistic, network, smoke, got {variant!r}'
    )
  config = ml_collections.ConfigDict()
  config.name = 'pFedMe on softmax groups'
  config.seed = 0
  config.dataset = {
    'source': {
      'name': 'softmax_groups',
      'options': {
        'num_groups': 3,
        'num_clients_per_group': 20,
        'num_features': 60,
        'num_classes': 10,
        'alpha': 0.5,
        'beta': 0.5,
        'min_examples': 50,
        'max_examples': 5_000,
      },
    },
    'distributions': {'kind': 'native'},
    'partition': {'law': 'natural', 'num_clients': 60},
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 1 / 3,
      'held_out_fraction': 0.0,
      'split_by': 'client',
    },
    'seed': 0,
    'num_shards': 1,
  }
  if variant == 'network':
    config.model = {'name': 'mlp', 'hidden_sizes': (128,)}
  else:
    config.model = {'name': 'logistic_regression'}
  config.model.compute_dtype = 'float32'
  config.model.pretrained = pretrained.none()
  config.algorithm = {
    'name': 'pfedme',
    'cohort_size': 0,
    'training_clients': 'all',
    'weighting': 'uniform',
    'averaged': 'local',
    'server_mixing': 1.0,
    'loss_scale': 1.0,
    'local_training': {
      'num_local_steps': 10,
      'batch_size': 20,
      'client_learning_rate': 0.005,
      'proximal_weight': 15.0,
      'num_proximal_steps': 5,
      'proximal_tolerance': 0.0,
      'personal_learning_rate': 0.01,
      'weight_decay': 0.0 if variant == 'network' else 0.001,
      'start': 'received',
      'kept': 'personalized',
    },
    'aggregation': robustness.aggregation(),
  }
  config.training = {
    'num_rounds': 100,
    'evaluation_interval': 1,
    'checkpoint_interval': 50,
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
    config.dataset.source.options.num_clients_per_group = 4
    config.dataset.source.options.max_examples = 80
    config.dataset.partition.num_clients = 12
    config.training.num_rounds = 3
  return config
