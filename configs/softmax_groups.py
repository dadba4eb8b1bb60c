"""Shared config of pFedKM's softmax groups.

`configs/{pfedkm,pfedme}/synthetic.py` extend it: 60 clients in three groups with
the constants of Tang, Guo and Guo (2021), Table 2, see configs/pfedkm/synthetic.py.
"""

import ml_collections

from configs import base

VARIANTS = ('logistic', 'network', 'smoke')


def get_config(algorithm: str, variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`, with weight decay for regression."""
  base.check(variant, VARIANTS)
  is_network = variant == 'network'
  config = base.experiment(
    algorithm,
    model='mlp' if is_network else 'logistic_regression',
    source='softmax_groups',
    law='natural',
  )
  config.dataset.source.options.update(
    num_groups=3,
    num_clients_per_group=20,
    num_features=60,
    num_classes=10,
    alpha=0.5,
    beta=0.5,
    min_examples=50,
    max_examples=5_000,
  )
  config.dataset.update(
    distributions={'kind': 'native'},
    partition={'num_clients': 60},
    splits={
      'test_ratio': 1 / 3,
      'held_out_fraction': 0.0,
      'split_by': 'client',
    },
  )
  config.training.update(num_rounds=100, checkpoint_interval=50)
  if is_network:
    config.model.hidden_sizes = (128,)
  else:
    config.algorithm.local_training.weight_decay = 0.001
  if variant == 'smoke':
    config.dataset.source.options.update(
      num_clients_per_group=4, max_examples=80
    )
    config.dataset.partition.num_clients = 12
    config.training.num_rounds = 3
  return config
