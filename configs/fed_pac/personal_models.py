r"""FedPAC on clients of few classes.

  python -m binaries.sweep --config=configs/fed_pac/personal_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --num_seeds=3 --workdir=runs/fed_pac

A row of Table 2 of Chen and Qiu (2025), arXiv:2503.08652, which does not give FedPAC's
options; here they are those of FedPAC's published code: penalty 1, one epoch of the
head at rate 0.1. Clients, networks and variants: configs/few_classes.py. The full size
has not been run. The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import few_classes


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `few_classes.VARIANTS`."""
  config = few_classes.get_config('fed_pac', variant, personal=True)
  config.name = f'FedPAC, personal models, {variant}'
  config.algorithm.update(head_training=config.algorithm.local_training)
  config.algorithm.head_training.update(
    num_local_epochs=1, optimizer={'learning_rate': 0.1}
  )
  return config
