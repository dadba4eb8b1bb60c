r"""FedAvg with fine-tuning on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/fine_tuning/planted_groups.py:mnist \
    --workdir=runs/fine_tuning_mnist_groups \
    --config.dataset.source.options.folder=DIR

The clients, networks and differences of configs/planted_groups.py; after the last round
every client trains a copy of the global model for five epochs. The paper (arXiv
2310.14337) has no fine-tuning on these. Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import planted_groups, robustness

_LEARNING_RATES = {'cifar10': 0.03}


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `planted_groups.VARIANTS`."""
  config = planted_groups.get_config(variant)
  config.name = (
    f'FedAvg and fine-tuning on clients in planted groups, {variant}'
  )
  if config.falling_rates.after_rounds:
    # The fine-tuning comes after all falls, with a rate of its own.
    config.falling_rates.rates = ('local_training.optimizer.learning_rate',)
  # Between the evaluations nobody asks for a fine-tuned model.
  config.training.evaluation_interval = config.training.num_rounds
  learning_rate = _LEARNING_RATES.get(planted_groups.data_of(variant), 0.1)
  config.algorithm = {
    'name': 'fine_tuning',
    'cohort_size': 0,
    'schedule': 'after',
    'start': 'received',
    'proximal_weight': 0.0,
    'personalization_interval': config.training.num_rounds,
    'global_proximal_weight': 0.0,
    'weighting': 'examples',
    'server_optimizer': {'name': 'sgd', 'learning_rate': 1.0},
    'loss_scale': 1.0,
    'local_training': planted_groups.local_training(learning_rate),
    'personal_training': {
      **planted_groups.local_training(learning_rate),
      'num_local_epochs': 5,
    },
    'aggregation': robustness.aggregation(),
  }
  return config
