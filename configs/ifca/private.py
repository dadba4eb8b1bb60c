r"""IFCA with differential privacy for clients.

  python -m binaries.run --config=configs/ifca/private.py \
    --workdir=runs/private_ifca --config.dataset.source.options.folder=DIR

The clients and variants of configs/private.py; `smoke` needs no data. Cluster models start at random.
"""

import ml_collections

from configs import private


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one of `private.VARIANTS`."""
  return private.get_config('ifca', variant, 'IFCA')
