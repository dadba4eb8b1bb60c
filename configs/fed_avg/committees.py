r"""Baselines of CMFL with a server: aggregation rules on the clients of its MNIST.

  python -m binaries.run --config=configs/fed_avg/committees.py:median \
    --workdir=runs/median_mnist --config.dataset.source.options.folder=DIR

The clients, network and local training of configs/cmfl/mnist.py: 40 of 400 clients
are active in a round. CMFL has a committee of 16 and averages 16 of the other 24; here
all 40 train, and a server applies the mean or a robust aggregation rule (CMFL's paper,
section 6.3): coordinate-wise median, trimmed mean without the 8 largest and 8 smallest
values, Krum, or Multi-Krum with 16 updates. Krum assumes 8 attackers in 40, twice the
mean number if a tenth of all clients is Byzantine. Results: docs/reproduction/cmfl.md.

The variant `smoke` needs no data: `mean` for 3 rounds on the scikit-learn digits.
"""

import ml_collections

from configs import base
from configs.cmfl import mnist

VARIANTS = ('mean', 'median', 'trimmed_mean', 'krum', 'multi_krum', 'smoke')


def get_config(variant: str = 'mean') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  base.check(variant, VARIANTS)
  is_smoke = variant == 'smoke'
  config = mnist.get_config('smoke' if is_smoke else 'everybody')
  config.name = f'A server on the clients of CMFL, {variant}'
  training = config.algorithm.local_training
  config.algorithm = base.algorithm_options('fed_avg')
  config.algorithm.update(
    cohort_size=12 if is_smoke else 40, local_training=training
  )
  if not is_smoke:
    config.algorithm.aggregation.update(
      rule=variant, num_byzantine=8, trim_fraction=0.2, num_selected=16
    )
  return config
