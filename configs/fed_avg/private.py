r"""FedAvg with differential privacy for clients.

  python -m binaries.run --config=configs/fed_avg/private.py \
    --workdir=runs/private_fed_avg --config.dataset.source.options.folder=DIR

The clients and variants of configs/private.py; `smoke` needs no data. Every client counts the same.
"""

import ml_collections

from configs import private


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one of `private.VARIANTS`."""
  return private.get_config('fed_avg', variant, 'FedAvg')
