r"""IFCA on FedSoft's CIFAR-10 (Ruan and Joe-Wong 2021, Table 8).

  python -m binaries.run --config=configs/ifca/cifar10.py:small_30_70 \
    --workdir=runs/ifca_cifar10 --config.dataset.source.options.folder=DIR

The clients, network, solver and variants of configs/fed_soft/cifar10.py. The
paper does not give the cohort size: here as many clients as train in a round of
FedSoft, 19 of 20. Results: docs/reproduction/fed_soft.md.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import cifar10


def get_config(variant: str = '30_70') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `cifar10.VARIANTS`."""
  config = cifar10.get_config('ifca', variant)
  config.name = f'IFCA on CIFAR-10, {variant}'
  config.algorithm.cohort_size = config.dataset.partition.num_clients * 19 // 20
  return config
