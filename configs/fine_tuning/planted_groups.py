r"""FedAvg with fine-tuning on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/fine_tuning/planted_groups.py:mnist \
    --workdir=runs/fine_tuning_mnist_groups \
    --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/planted_groups.py. After the
last round every client fine-tunes the global model for five epochs. The paper (arXiv
2310.14337) has no results of fine-tuning on these. Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import planted_groups


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `planted_groups.VARIANTS`."""
  config = planted_groups.get_config('fine_tuning', variant)
  config.name = (
    f'FedAvg and fine-tuning on clients in planted groups, {variant}'
  )
  if config.lr_schedule.after_rounds:
    # Fine-tuning has its own rate, and comes after all decays.
    config.lr_schedule.rates = ('local_training.optimizer.learning_rate',)
  # Only evaluations need fine-tuned models: evaluate once, at the end.
  config.training.evaluation_interval = config.training.get_oneway_ref(
    'num_rounds'
  )
  config.algorithm.update(
    cohort_size=0,
    personalization_interval=config.training.get_oneway_ref('num_rounds'),
    personal_training={'num_local_epochs': 5},
  )
  return config
