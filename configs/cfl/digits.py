r"""CFL on real handwritten digits, upright and rotated.

  python -m binaries.run --config=configs/cfl/digits.py --workdir=runs/cfl_digits

The same 24 clients as configs/fed_avg/digits.py, all of them in every round.
After 30 rounds (seed 0): the clients split in round 11, the first in which a split is
allowed, into clients of mostly upright and of mostly rotated digits (adjusted Rand
index 1.0); test accuracy is 90.4 % on the clients' 293 test examples, and the cluster
models have 93.7 % and 93.5 % on held-out digits of their own kind. With
`--config.algorithm.num_clusters=4` both halves split again in round 12, and accuracy is
89.8 %: the thresholds determine the number of clusters.

The variant `smoke` is the same with 3 rounds.
"""

import ml_collections

from configs import digits


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `digits.get_config`."""
  config = digits.get_config('cfl', variant)
  config.name = 'CFL on digits, 10:90'
  config.algorithm.num_clusters = 2
  config.algorithm.splitting.update(
    mean_norm_below=0.4, largest_norm_above=0.6, first_round=11
  )
  return config
