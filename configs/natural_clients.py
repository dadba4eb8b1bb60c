"""PPFL's natural clients: all of the experiment but the algorithm.

`configs/fed_avg/natural_clients.py` and others add theirs. They are the practical
data of Di, Yang, Ye and Chang (arXiv 2310.14337), as Pillutla et al. (2022,
arXiv:2204.03809) prepare them:

  emnist          federated EMNIST's writers with at least 100 training and 25 test
                  images; ResNet-18 with group norm, 11,199,486 parameters; 10
                  clients in each of 2,000 rounds
  stack_overflow  1,000 accounts with at least 100 posts to train and 10 to test, and
                  no more than 1,000 of either; 10,000 words, 20 of a post; a
                  transformer of four blocks, 5,731,092 parameters; 50 clients in each
                  of 1,000 rounds. Accuracy counts words alone

They read TFF's databases, unpacked, from data/federated_emnist or
data/stack_overflow: `config.dataset.source.options.folder`. Training and test
examples are those of the database.

What differs from their code: the 1,000 accounts are drawn by the hash of their ids,
pixels are not standardized, and learning rates stay as they are. On `stack_overflow`
clients clip their gradients to a norm of 0.25, as there, but pFedMe does not.
"""

import ml_collections

from configs import falling_rates, pretrained, robustness

VARIANTS = ('emnist', 'stack_overflow', 'smoke')


def get_config(variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one variant without `algorithm` and `name`."""
  if variant not in VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(VARIANTS)}, got {variant!r}'
    )
  config = ml_collections.ConfigDict()
  config.seed = 1
  config.dataset = _dataset(variant)
  config.model = {
    **_model(variant),
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
  num_rounds = {'emnist': 2000, 'stack_overflow': 1000, 'smoke': 2}[variant]
  config.training = {
    'num_rounds': num_rounds,
    'evaluation_interval': max(num_rounds // 10, 1),
    'checkpoint_interval': 100,
    # A thousand models would not fit.
    'client_states': 'memory' if variant == 'smoke' else 'disk',
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
  config.attack = robustness.attack()
  return config


def cohort_size(variant: str) -> int:
  """Returns how many clients take part in a round."""
  return {'emnist': 10, 'stack_overflow': 50, 'smoke': 4}[variant]


def server_optimizer(variant: str) -> dict:
  """Returns the server's step along what the clients moved."""
  if variant == 'stack_overflow':
    return {'name': 'adam', 'learning_rate': 5e-4}
  return {'name': 'sgd', 'learning_rate': 1.0}


def local_training(variant: str) -> dict:
  """Returns one epoch of the solver that all methods share."""
  is_text = variant == 'stack_overflow'
  return {
    'num_local_epochs': 1,
    'batch_size': 64 if is_text else 32,
    'optimizer': {
      'name': 'sgd',
      'learning_rate': 1.0 if is_text else 0.5,
      'momentum': 0.0,
      'clip_norm': 0.25 if is_text else 0.0,
    },
    'augmentation': 'none',
    'solver': 'descent',
    'weight_decay': 0.0,
    'num_local_steps': 0,
  }


def pull(variant: str) -> float:
  """Returns how strongly Ditto and pFedMe pull a client's model."""
  return 1e-3 if variant == 'stack_overflow' else 0.1


def _dataset(variant: str) -> dict:
  is_smoke = variant == 'smoke'
  return {
    'source': _source(variant),
    'distributions': {'kind': 'native' if is_smoke else 'identity'},
    'partition': {'law': 'natural', 'num_clients': 12 if is_smoke else None},
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.25 if is_smoke else 0.0,
      'held_out_fraction': 0.0,
      'split_by': 'client',
      'client_test': 'ratio' if is_smoke else 'dealt',
    },
    'seed': 1,
    'num_shards': 1 if is_smoke else 8,
  }


def _source(variant: str) -> dict:
  if variant == 'smoke':
    options = {'num_clients_per_group': 4, 'max_examples': 80}
    return {'name': 'softmax_groups', 'options': options}
  if variant == 'emnist':
    return {
      'name': 'federated_emnist',
      'options': {
        'folder': 'data/federated_emnist',
        'min_train': 100,
        'min_test': 25,
      },
    }
  return {
    'name': 'stack_overflow',
    'options': {
      'folder': 'data/stack_overflow',
      'min_train': 100,
      'min_test': 10,
      'num_clients': 1000,
      'draw_seed': 1,
      'examples_are': 'posts',
      'max_posts': 1000,
      'length': 20,
      'vocabulary_size': 10_000,
    },
  }


def _model(variant: str) -> dict:
  if variant == 'smoke':
    return {'name': 'mlp', 'hidden_sizes': (16,), 'normalization': 'none'}
  if variant == 'emnist':
    return {'name': 'resnet18', 'stem': 'small', 'normalization': 'group'}
  return {
    'name': 'transformer',
    'num_blocks': 4,
    'width': 256,
    'num_heads': 4,
    'hidden_size': 1024,
    'decoder': 'tied',
  }
