r"""FedEM on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/fed_em/planted_groups.py:mnist \
    --workdir=runs/fed_em_mnist_groups --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/planted_groups.py. There are as
many models as groups. In the paper (arXiv 2310.14337, Table 1) FedEM has 99.04 % +-
0.03 on `mnist`, 84.93 % +- 2.48 on `cifar10` and 76.25 % +- 0.73 on `synthetic`.
Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import planted_groups


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `planted_groups.VARIANTS`."""
  config = planted_groups.get_config('fed_em', variant)
  config.name = f'FedEM on clients in planted groups, {variant}'
  config.algorithm.update(
    num_clusters=planted_groups.num_groups(variant),
    cohort_size=config.dataset.partition.num_clients,
  )
  return config
