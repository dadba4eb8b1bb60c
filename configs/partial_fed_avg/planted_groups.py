r"""Each client alone, and LG-FedAvg, on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/partial_fed_avg/planted_groups.py:mnist \
    --workdir=runs/lg_fed_avg_mnist_groups \
    --config.dataset.source.options.folder=DIR

The clients, networks and differences of configs/planted_groups.py, whose variants are
LG-FedAvg (private body, shared head); with the option below each client is alone. In
the paper (arXiv 2310.14337, Table 1) LG-FedAvg and Local have 96.95 % +- 0.07 and
96.71 % +- 0.05 on `mnist`, 71.30 % +- 1.31 and 54.10 % +- 1.27 on `cifar10`, 69.34 %
(FedAvg's) and 66.13 % +- 0.08 on `synthetic`. Not run here.

  --config.algorithm.private="('all',)" \
    --config.algorithm.local_training.optimizer.learning_rate=0.03

(0.1 on `synthetic`.) The variant `smoke` needs no data: 12 clients share the
scikit-learn digits for 2 rounds.
"""

import ml_collections

from configs import planted_groups, robustness

_LEARNING_RATES = {'cifar10': 0.01}


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `planted_groups.VARIANTS`."""
  config = planted_groups.get_config(variant)
  config.name = f'LG-FedAvg on clients in planted groups, {variant}'
  training = planted_groups.local_training(_LEARNING_RATES.get(variant, 0.1))
  config.algorithm = {
    'name': 'partial_fed_avg',
    'private': ('all_but_last_layer',),
    'schedule': 'together',
    'cohort_size': 0,
    'weighting': 'examples',
    'initial_private_weights': 'own',
    'personalization_interval': 0,
    'server_optimizer': {'name': 'sgd', 'learning_rate': 1.0},
    'loss_scale': 1.0,
    'local_training': training,
    'private_training': training,
    'aggregation': robustness.aggregation(),
  }
  return config
