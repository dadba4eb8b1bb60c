r"""FedAvg with fine-tuning, plain or proximal, on PPFL's natural clients.

  python -m binaries.run --config=configs/fine_tuning/natural_clients.py:emnist \
    --workdir=runs/fine_tuning_emnist --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/natural_clients.py. Every
client fine-tunes the last global model for an epoch. In the paper (arXiv 2310.14337,
Table 2) fine-tuning has 94.14 % +- 0.06 on `emnist` and 25.15 % +- 0.06 on
`stack_overflow`. Neither was run here: the databases were not available. With a
proximal term: configs/ditto/natural_clients.py.

The variant `smoke` needs no data: 12 generated clients, 2 rounds.
"""

import ml_collections

from configs import natural_clients


def get_config(variant: str = 'emnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `natural_clients.VARIANTS`."""
  config = natural_clients.get_config('fine_tuning', variant)
  config.name = f'FedAvg and fine-tuning on natural clients, {variant}'
  config.algorithm.personalization_interval = config.training.get_oneway_ref(
    'num_rounds'
  )
  config.algorithm.personal_training.optimizer.learning_rate = (
    0.1 if variant == 'stack_overflow' else 0.01
  )
  return config
