"""Real handwritten digits, upright and rotated: all but the algorithm.

`configs/*/digits.py` add theirs. The 1,797 digits that ship with scikit-learn; 24
clients that mix two source distributions, upright and rotated by 90 degrees
counter-clockwise, 10:90 or 90:10; and 4 clients that take no part in training.
A perceptron of 64 hidden units, 30 rounds; 3 in the variant `smoke`.
"""

import ml_collections

from configs import falling_rates, pretrained, robustness


def get_config(
  variant: str, variants: tuple[str, ...] = ('full',)
) -> ml_collections.ConfigDict:
  """Returns the config of one variant without `algorithm` and `name`.

  Args:
    variant: One of `variants`, or `'smoke'`.
    variants: Those that the algorithm has.
  """
  if variant not in (*variants, 'smoke'):
    raise ValueError(
      f'variant must be one of {", ".join((*variants, "smoke"))}, got '
      f'{variant!r}'
    )
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.dataset = {
    'source': {'name': 'digits', 'options': {}},
    'distributions': {'kind': 'rotations', 'quarter_turns': (0, 1)},
    'partition': {'law': '10:90', 'num_clients': 24, 'num_unseen_clients': 4},
    'sizes': {'law': 'uniform', 'minimum': 40, 'maximum': 80},
    'splits': {
      'validation_ratio': 0.2,
      'test_ratio': 0.2,
      'held_out_fraction': 0.2,
    },
    'seed': 0,
    'num_shards': 2,
  }
  config.model = {
    'name': 'mlp',
    'hidden_sizes': (64,),
    'normalization': 'none',
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
  config.training = {
    'num_rounds': 3 if variant == 'smoke' else 30,
    'evaluation_interval': 1,
    'checkpoint_interval': 10,
    'client_states': 'memory',
    'restarts': {'num_restarts': 1, 'num_rounds': 5},
    'dropout_rate': 0.0,
  }
  config.falling_rates = falling_rates.none()
  config.runtime = {
    'name': 'vectorized',
    'vectorized': {
      # Three rounds take less than to trace graphs that are vectorized.
      'clients_per_block': 1 if variant == 'smoke' else 0,
      'num_parallel_blocks': 0,
      'memory_budget_mib': 0,
    },
    'tff': {'workers': ()},
  }
  config.attack = robustness.attack()
  return config


def local_training(
  learning_rate: float = 0.1, num_local_epochs: int = 10
) -> dict:
  """Returns the local training of those who train by epochs."""
  return {
    'num_local_epochs': num_local_epochs,
    'batch_size': 10,
    'optimizer': {'name': 'sgd', 'learning_rate': learning_rate},
    'augmentation': 'none',
    'solver': 'descent',
    'weight_decay': 0.0,
    'num_local_steps': 0,
  }
