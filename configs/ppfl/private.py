r"""PPFL with differential privacy for clients.

  python -m binaries.run --config=configs/ppfl/private.py \
    --workdir=runs/private_ppfl --config.dataset.source.options.folder=DIR

The clients and variants of configs/private.py; `smoke` needs no data. Memberships
stay at the clients: there is no penalty, and their gradients are not weighted by
the clients' shares of all examples, which the clients would receive.
"""

import ml_collections

from configs import private


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one of `private.VARIANTS`."""
  config = private.get_config('ppfl', variant, 'PPFL')
  config.algorithm.laplacian.weight = 0.0
  config.algorithm.membership.gradient_weight = 'none'
  return config
