r"""SCAFFOLD on clients of few classes, plain and decomposed: a row of Table 1.

  python -m binaries.sweep --config=configs/scaffold/global_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --config.model.decomposition.num_atoms=9 --num_seeds=3 \
    --grid=model.decomposition.trained=kernels,factors --workdir=runs/scaffold

trains kernels and factors from equal starts; plain networks of another variance,
as they start without factors, are `--config.model.decomposition.num_atoms=0`.

Table 1 of Chen and Qiu (2025), arXiv:2503.08652. Clients, networks and variants:
configs/few_classes.py. The full size has not been run. The variant `smoke` needs no
data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import few_classes


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `few_classes.VARIANTS`."""
  config = few_classes.get_config('scaffold', variant, personal=False)
  config.name = f'SCAFFOLD, global models, {variant}'
  return config
