r"""Ditto on clients of few classes.

  python -m binaries.sweep --config=configs/ditto/personal_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --num_seeds=3 --workdir=runs/ditto

A row of Table 2 of Chen and Qiu (2025), arXiv:2503.08652. Clients, networks and
variants: configs/few_classes.py. The full size has not been run. The variant `smoke`
needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import few_classes, robustness


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `few_classes.VARIANTS`."""
  config = few_classes.get_config(variant, personal=True)
  config.name = f'Ditto, personal models, {variant}'
  config.algorithm = {
    'name': 'ditto',
    'cohort_size': few_classes.cohort_size(variant, personal=True),
    'schedule': 'beside',
    'start': 'own',
    'proximal_weight': 0.75,
    'personalization_interval': 1,
    'global_proximal_weight': 0.0,
    'weighting': 'examples',
    'server_optimizer': {'name': 'sgd', 'learning_rate': 1.0},
    'loss_scale': 1.0,
    'local_training': few_classes.local_training(variant, personal=True),
    'personal_training': few_classes.local_training(variant, personal=True),
    'aggregation': robustness.aggregation(),
  }
  return config
