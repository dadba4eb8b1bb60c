r"""Baselines of CMFL with a server: aggregation rules on the same clients.

  python -m binaries.run --config=configs/fed_avg/committees.py:median \
    --workdir=runs/median_mnist --config.dataset.source.options.folder=DIR

The clients, network and local training are those of configs/cmfl/mnist.py, and with
the prefix `shakespeare_` those of configs/cmfl/shakespeare.py: 40 of 400, or 15 of
143 clients are active in a round. CMFL has a committee of 16, or 6, and averages 16
of the other 24, or 5 of 9; here all active clients train, and a server applies the
mean or a robust aggregation rule (CMFL's paper, section 6.3): coordinate-wise
median, trimmed mean without a fifth of the values on each side, Krum, or Multi-Krum
with 16, or 6 updates. Krum assumes 8 attackers in 40, or 3 in 15, twice the mean
number if a tenth of all clients is Byzantine. With the suffix `_repo` the trimmed
mean drops a tenth of the values on each side, as the authors' code does, and Krum
assumes 4, or 1 attackers, their mean number rounded down, where that code knows the
number of the round; the paper has neither. Results: docs/reproduction/cmfl.md.

The variant `smoke` needs no data: `mean` for 3 rounds on the scikit-learn digits.
"""

import ml_collections

from configs import base
from configs.cmfl import mnist, shakespeare

_REPO = '_repo'
_TEXT = 'shakespeare_'
_ASSUME_ATTACKERS = ('trimmed_mean', 'krum', 'multi_krum')
_RULES = (
  *('mean', 'median', *_ASSUME_ATTACKERS),
  *(rule + _REPO for rule in _ASSUME_ATTACKERS),
)
VARIANTS = (*_RULES, *(_TEXT + rule for rule in _RULES), 'smoke')


def get_config(variant: str = 'mean') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  base.check(variant, VARIANTS)
  is_smoke, is_text = variant == 'smoke', variant.startswith(_TEXT)
  num_active = 12 if is_smoke else 15 if is_text else 40
  config = (shakespeare if is_text else mnist).get_config(
    'smoke' if is_smoke else 'everybody'
  )
  config.name = f'A server on the clients of CMFL, {variant}'
  training = config.algorithm.local_training
  config.algorithm = base.algorithm_options('fed_avg')
  config.algorithm.update(cohort_size=num_active, local_training=training)
  if not is_smoke:
    share = 0.1 if variant.endswith(_REPO) else 0.2
    config.algorithm.aggregation.update(
      rule=variant.removeprefix(_TEXT).removesuffix(_REPO),
      num_byzantine=int(share * num_active),
      trim_fraction=share,
      num_selected=round(0.4 * num_active),
    )
  return config
