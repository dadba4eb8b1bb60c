r"""Baselines of CMFL with a server: aggregation rules on the clients of its MNIST.

  python -m binaries.run --config=configs/fed_avg/committees.py:median \
    --workdir=runs/median_mnist --config.dataset.source.options.folder=DIR

The clients, network and local training of configs/cmfl/mnist.py: 40 of 400 clients
are active in a round. CMFL has a committee of 16 and averages 16 of the other 24; here
all 40 train, and a server applies the mean or a robust aggregation rule (CMFL's paper,
section 6.3): coordinate-wise median, trimmed mean without the 8 largest and 8 smallest
values, Krum, or Multi-Krum with 16 updates. Krum assumes 8 attackers in 40, twice the
mean number if a tenth of all clients is Byzantine. With the suffix `_repo` the trimmed
mean drops a tenth of the values on each side, as the authors' code does, and Krum
assumes 4 attackers, their mean number, where that code knows the number of the round;
the paper has neither. Results: docs/reproduction/cmfl.md.

The variant `smoke` needs no data: `mean` for 3 rounds on the scikit-learn digits.
"""

import ml_collections

from configs import base
from configs.cmfl import mnist

_REPO = '_repo'
_ASSUME_ATTACKERS = ('trimmed_mean', 'krum', 'multi_krum')
VARIANTS = (
  *('mean', 'median', 'smoke', *_ASSUME_ATTACKERS),
  *(rule + _REPO for rule in _ASSUME_ATTACKERS),
)


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
    is_repo = variant.endswith(_REPO)
    config.algorithm.aggregation.update(
      rule=variant.removesuffix(_REPO),
      num_byzantine=4 if is_repo else 8,
      trim_fraction=0.1 if is_repo else 0.2,
      num_selected=16,
    )
  return config
