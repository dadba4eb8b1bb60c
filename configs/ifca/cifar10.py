r"""IFCA on FedSoft's CIFAR-10 (Ruan and Joe-Wong 2021, Table 8).

  python -m binaries.run --config=configs/ifca/cifar10.py:small_30_70 \
    --workdir=runs/ifca_cifar10 --config.dataset.source.options.folder=DIR

The clients, network, solver and variants of configs/fed_soft/cifar10.py. The cohort size,
which the paper does not give, is that of configs/cifar10.py.
Results: docs/reproduction/fed_soft.md.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import cifar10


def get_config(variant: str = '30_70') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `cifar10.VARIANTS`."""
  config = cifar10.get_config('ifca', variant)
  config.name = f'IFCA on CIFAR-10, {variant}'
  return config
