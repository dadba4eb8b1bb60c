r"""Ditto on PPFL's natural clients, as defined in PPFL's paper.

  python -m binaries.run --config=configs/ditto/natural_clients.py:emnist \
    --workdir=runs/ditto_emnist --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/natural_clients.py. After the
last round of FedAvg every client trains a copy of the global model for an epoch, with a
proximal term to the global model; in Ditto's own paper clients do so in every round
(`schedule='beside'`). In PPFL's paper (arXiv 2310.14337, Table 2) Ditto has 94.13 % +-
0.06 on `emnist` and 25.16 % +- 0.06 on `stack_overflow`. Neither was run here: the
databases were not available.

The variant `smoke` needs no data: 12 generated clients, 2 rounds.
"""

import ml_collections

from configs import natural_clients
from configs.fine_tuning import natural_clients as fine_tuning


def get_config(variant: str = 'emnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `natural_clients.VARIANTS`."""
  config = fine_tuning.get_config(variant)
  config.name = f'Ditto on natural clients, {variant}'
  config.algorithm.name = 'ditto'
  config.algorithm.proximal_weight = natural_clients.pull(variant)
  return config
