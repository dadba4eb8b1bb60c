r"""FedSoft on CIFAR-10 (paper, Tables 7 and 8).

  python -m binaries.run --config=configs/fed_soft/cifar10.py:small_10_90 \
    --workdir=runs/cifar10 --config.dataset.source.options.folder=DIR

DIR holds the files of the binary version of CIFAR-10. Variants at the paper's
size are `10_90`, `30_70`, `linear`, `random`; the prefix `small_` makes them
smaller, see configs/cifar10.py. 20 clients, K = 15, tau = 2, sigma = 1e-4,
lambda = 0.01, Adam 5e-4. Results: docs/reproduction/fed_soft.md.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import cifar10


def get_config(variant: str = '10_90') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `cifar10.VARIANTS`."""
  config = cifar10.get_config('fed_soft', variant)
  config.name = f'FedSoft on CIFAR-10, {variant}'
  config.algorithm.update(
    cohort_size_per_cluster=config.dataset.partition.num_clients * 3 // 4,
    proximal_weight=0.01,
  )
  return config
