"""Shared config of handwritten digits, upright and rotated.

`configs/*/digits.py` extend it. The 1,797 digits that ship with scikit-learn; 24
clients that mix two source distributions, upright and rotated by 90 degrees
counter-clockwise, 10:90 or 90:10; and 4 clients that take no part in training.
A perceptron with 64 hidden units, 30 rounds; 3 in the variant `smoke`.
"""

import ml_collections

from configs import base


def get_config(
  algorithm: str, variant: str, variants: tuple[str, ...] = ('full',)
) -> ml_collections.ConfigDict:
  """Returns the config of one variant.

  If the algorithm has these options, half of the clients are sampled per round, and
  each trains for ten epochs; all other options are defaults.

  Args:
    algorithm: Name of the algorithm.
    variant: One of `variants`, or `'smoke'`.
    variants: Names of the algorithm's variants.
  """
  base.check(variant, (*variants, 'smoke'))
  config = base.experiment(algorithm, model='mlp', source='digits', law='10:90')
  config.dataset.update(
    distributions={'kind': 'rotations', 'quarter_turns': (0, 1)},
    partition={'num_clients': 24, 'num_unseen_clients': 4},
    sizes={'law': 'uniform', 'minimum': 40, 'maximum': 80},
    splits={'validation_ratio': 0.2, 'test_ratio': 0.2},
    num_shards=2,
  )
  if 'cohort_size' in config.algorithm:
    config.algorithm.cohort_size = 12
  for training in base.trainings(config):
    training.num_local_epochs = 10
  config.training.num_rounds = 30
  if variant == 'smoke':
    config.training.num_rounds = 3
    # Three rounds take less time than tracing vectorized graphs.
    config.runtime.vectorized.clients_per_block = 1
  return config
