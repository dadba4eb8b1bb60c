r"""FedSoft with differential privacy for clients.

  python -m binaries.run --config=configs/fed_soft/private.py \
    --workdir=runs/private_fed_soft --config.dataset.source.options.folder=DIR

The clients and variants of configs/private.py; `smoke` needs no data. All clients keep importance weights, and
contribute to both clusters by them.
"""

import ml_collections

from configs import private


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one of `private.VARIANTS`."""
  config = private.get_config('fed_soft', variant, 'FedSoft')
  config.algorithm.update(proximal_weight=0.1)
  if variant != 'open':
    config.algorithm.selection = 'weighted_full'
  else:
    config.algorithm.cohort_size_per_cluster = 100
  return config
