r"""Ditto on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/ditto/planted_groups.py:mnist \
    --workdir=runs/ditto_mnist_groups --config.dataset.source.options.folder=DIR

The clients, networks and differences of configs/planted_groups.py. The paper
(arXiv 2310.14337) has no Ditto on these; the weight of the proximal term is that of its
EMNIST. Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import planted_groups, robustness

_LEARNING_RATES = {'cifar10': 0.03}


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `planted_groups.VARIANTS`."""
  config = planted_groups.get_config(variant)
  config.name = f'Ditto on clients in planted groups, {variant}'
  training = planted_groups.local_training(
    _LEARNING_RATES.get(planted_groups.data_of(variant), 0.1)
  )
  config.algorithm = {
    'name': 'ditto',
    'cohort_size': 0,
    'schedule': 'beside',
    'start': 'own',
    'proximal_weight': 0.1,
    'personalization_interval': 1,
    'global_proximal_weight': 0.0,
    'weighting': 'examples',
    'server_optimizer': {'name': 'sgd', 'learning_rate': 1.0},
    'loss_scale': 1.0,
    'local_training': training,
    'personal_training': training,
    'aggregation': robustness.aggregation(),
  }
  return config
