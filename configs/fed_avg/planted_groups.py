r"""FedAvg on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/fed_avg/planted_groups.py:mnist \
    --workdir=runs/fed_avg_mnist_groups --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/planted_groups.py. In the paper
(arXiv 2310.14337, Table 1) FedAvg has 96.64 % +- 0.05 on `mnist`, 48.98 % +- 0.13 on
`cifar10` and 69.34 % on `synthetic`. Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import planted_groups


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `planted_groups.VARIANTS`."""
  config = planted_groups.get_config('fed_avg', variant)
  config.name = f'FedAvg on clients in planted groups, {variant}'
  config.algorithm.update(cohort_size=config.dataset.partition.num_clients)
  return config
