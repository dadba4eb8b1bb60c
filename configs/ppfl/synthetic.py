r"""PPFL's synthetic data: 300 clients that mix three logistic models.

  python -m binaries.run --config=configs/ppfl/synthetic.py \
    --workdir=runs/ppfl_synthetic

The variants `ppfl1`, `ppfl2`, `probabilities`, `released` and `random_block` are those
of configs/ppfl/planted_groups.py on `synthetic`, with its 5,000 test examples per
client. Results: docs/reproduction/ppfl.md.

The variant `smoke` is `ppfl1` with 12 clients, two of which never train, 12 features
and 3 rounds.
"""

import ml_collections

from configs import base
from configs.ppfl import planted_groups

_VARIANTS = (*planted_groups.METHODS, 'smoke')


def get_config(variant: str = 'ppfl1') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  base.check(variant, _VARIANTS)
  if variant != 'smoke':
    of_method = '' if variant == 'ppfl1' else f'_{variant}'
    return planted_groups.get_config(f'synthetic{of_method}')
  config = planted_groups.get_config('synthetic_80_20')
  config.name = 'PPFL on a few mixtures of logistic models'
  config.dataset.source.options.update(
    num_clients=12, num_features=12, max_examples=200
  )
  config.dataset.partition.update(num_clients=10, num_unseen_clients=2)
  config.dataset.num_shards = 1
  config.training.update(num_rounds=3, evaluation_interval=1)
  return config
