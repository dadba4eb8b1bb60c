r"""FedAvg on PPFL's natural clients.

  python -m binaries.run --config=configs/fed_avg/natural_clients.py:emnist \
    --workdir=runs/fed_avg_emnist --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/natural_clients.py. In the
paper (arXiv 2310.14337, Table 2) FedAvg has 93.16 % on `emnist` and 23.78 % on
`stack_overflow`. Neither was run here: the databases were not available.

The variant `smoke` needs no data: 12 generated clients, 2 rounds.
"""

import ml_collections

from configs import natural_clients


def get_config(variant: str = 'emnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `natural_clients.VARIANTS`."""
  config = natural_clients.get_config('fed_avg', variant)
  config.name = f'FedAvg on natural clients, {variant}'
  return config
