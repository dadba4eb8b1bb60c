r"""Segmented gossip on real handwritten digits: every client pulls from two others.

  python -m binaries.run --config=configs/gossip/digits.py \
    --workdir=runs/gossip_digits

The same 24 clients as configs/fed_avg/digits.py; all train in every round, split their
models into 10 segments and pull each from 2 others. Test accuracy on the clients'
examples after 30 rounds, seeds 0, 1 and 2 of training (`--config.seed`): 90.1, 91.8 and
90.1 % with their own merged models, 88.7, 91.5 and 89.4 % before merging, and 90.4,
91.1 and 91.1 % with the mean of all models, which has 93.2, 94.3 and 92.6 % on held-out
upright digits and 90.2, 92.6 and 91.0 % on rotated ones. FedAvg with all 24 clients has
90.8 % on the clients' examples (seed 0, `configs/fed_avg/digits.py` with
`--config.algorithm.cohort_size=24`).

The variant `smoke` is the same with 3 rounds.
"""

import ml_collections

from configs import digits


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `digits.get_config`."""
  config = digits.get_config('gossip', variant)
  config.name = 'Segmented gossip on digits, 10:90'
  config.algorithm.num_segments = 10
  return config
