r"""Local training, FedPer, FedRep and LG-FedAvg on clients of few classes.

  python -m binaries.sweep --config=configs/partial_fed_avg/personal_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --num_seeds=3 --workdir=runs/partial_fed_avg

is FedPer. A variant with `_lg_fed_avg`, `_fed_rep` or `_local` behind it, such as
cifar10_2_fed_rep, is one of the others.

Rows of Table 2 of Chen and Qiu (2025), arXiv:2503.08652; FedRep has 10 epochs of the
head, then one of the body. Clients, networks and variants: configs/few_classes.py. The
full size has not been run. The variant `smoke` needs no data: the scikit-learn digits,
2 rounds.
"""

import ml_collections

from configs import few_classes, robustness

# All but the settings of FedPer.
_METHODS = {
  'lg_fed_avg': {'private': ('all_but_last_layer',)},
  'fed_rep': {'schedule': 'private_first'},
  'local': {'private': ('all',)},
}
VARIANTS = (
  *few_classes.VARIANTS,
  *(f'{one}_{name}' for one in few_classes.VARIANTS for name in _METHODS),
)


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(VARIANTS)}, got {variant!r}'
    )
  named = [name for name in _METHODS if variant.endswith(f'_{name}')]
  method = named[0] if named else ''
  clients = variant.removesuffix(f'_{method}')
  config = few_classes.get_config(clients, personal=True)
  config.name = f'Partial personalization, personal models, {variant}'
  config.algorithm = {
    'name': 'partial_fed_avg',
    'private': ('last_layer',),
    'schedule': 'together',
    'cohort_size': few_classes.cohort_size(clients, personal=True),
    'weighting': 'examples',
    'initial_private_weights': 'common',
    'personalization_interval': 0,
    'server_optimizer': {'name': 'sgd', 'learning_rate': 1.0},
    'loss_scale': 1.0,
    'local_training': few_classes.local_training(clients, personal=True),
    'private_training': few_classes.local_training(clients, personal=True),
    'aggregation': robustness.aggregation(),
  }
  config.algorithm.update(_METHODS.get(method, {}))
  if method == 'fed_rep':
    config.algorithm.local_training.num_local_epochs = 1
  return config
