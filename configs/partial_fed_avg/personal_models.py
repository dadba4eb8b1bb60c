r"""Local training, FedPer, FedRep and LG-FedAvg on clients of few classes.

  python -m binaries.sweep --config=configs/partial_fed_avg/personal_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --num_seeds=3 --workdir=runs/partial_fed_avg

is FedPer. The suffixes `_lg_fed_avg`, `_fed_rep` and `_local` select the others, as in
cifar10_2_fed_rep.

Rows of Table 2 of Chen and Qiu (2025), arXiv:2503.08652; FedRep has 10 epochs of the
head, then one of the body. Clients, networks and variants: configs/few_classes.py. The
full size has not been run. The variant `smoke` needs no data: the scikit-learn digits,
2 rounds.
"""

import ml_collections

from configs import base, few_classes

_METHODS = ('fed_per', 'lg_fed_avg', 'fed_rep', 'local')


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of a variant of `few_classes.VARIANTS`."""
  data, method = base.part(variant, few_classes.VARIANTS, _METHODS)
  config = few_classes.get_config('partial_fed_avg', data, personal=True)
  config.name = f'Partial personalization, personal models, {variant}'
  config.algorithm.update(private_training=config.algorithm.local_training)
  if method == 'lg_fed_avg':
    config.algorithm.private = ('all_but_last_layer',)
  elif method == 'fed_rep':
    config.algorithm.schedule = 'private_first'
    config.algorithm.local_training.num_local_epochs = 1
  elif method == 'local':
    config.algorithm.private = ('all',)
  return config
