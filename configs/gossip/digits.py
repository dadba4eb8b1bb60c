r"""Segmented gossip on real handwritten digits: every client pulls from two others.

  python -m binaries.run --config=configs/gossip/digits.py \
    --workdir=runs/gossip_digits

The same 24 clients as configs/fed_avg/digits.py; all train in every round, split their
models into 10 segments and pull each from 2 others.

The variant `smoke` is the same with 3 rounds.
"""

import ml_collections

from configs import digits


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `digits.get_config`."""
  config = digits.get_config(variant)
  config.name = 'Segmented gossip on digits, 10:90'
  config.algorithm = {
    'name': 'gossip',
    'num_segments': 10,
    'num_replicas': 2,
    'loss_scale': 1.0,
    'local_training': digits.local_training(),
  }
  return config
