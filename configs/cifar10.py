"""Shared config of FedSoft's CIFAR-10 (paper, section "Experiments").

`configs/{fed_soft,ifca,fed_em}/cifar10.py` extend it. At the paper's size: 20
clients of 3,000 to 3,500 of the 50,000 training images (the paper names no
number; its authors' code draws as many, with replacement), upright or rotated
by 90 degrees counter-clockwise, six convolutions, 200 rounds.

The small variants have clients of 100 to 200 training images, the smaller
network `letters_cnn` and 16 rounds.

The paper names no cohort size of IFCA and FedEM: here as many clients as train in a
round of FedSoft, 19 of 20.
"""

import ml_collections

from configs import base

LAWS = {
  '10_90': '10:90',
  '30_70': '30:70',
  'linear': 'linear',
  'random': 'random',
}
VARIANTS = (*LAWS, *(f'small_{name}' for name in LAWS), 'smoke')


def get_config(algorithm: str, variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`, with local training set.

  The small variants have fewer epochs of smaller batches than the paper.
  """
  base.check(variant, VARIANTS)
  is_smoke, is_paper = variant == 'smoke', variant in LAWS
  config = base.experiment(
    algorithm,
    model='cifar_cnn' if is_paper else 'letters_cnn',
    source='digits' if is_smoke else 'cifar',
    law=LAWS.get(variant.removeprefix('small_'), '10:90'),
  )
  config.dataset.update(
    distributions={'kind': 'rotations', 'quarter_turns': (0, 1)},
    partition={'num_clients': 20},
    splits={'held_out_fraction': 0.0},
    num_shards=4 if is_paper else 1,
  )
  config.algorithm.local_training.update(
    num_local_epochs=10 if is_paper else 3,
    batch_size=64 if is_paper else 16,
    optimizer={'name': 'adam', 'learning_rate': 5e-4},
    augmentation='crop_and_flip',
  )
  config.dataset.sizes.update(law='uniform', minimum=3000, maximum=3500)
  config.training.update(num_rounds=200, evaluation_interval=10)
  if not is_paper:
    config.dataset.sizes.update(minimum=100, maximum=200)
    config.dataset.splits.update(validation_ratio=0.2, test_ratio=0.2)
    config.training.update(num_rounds=16, evaluation_interval=4)
  if is_smoke:
    config.dataset.partition.num_clients = 6
    config.dataset.sizes.update(minimum=20, maximum=30)
    config.dataset.splits.held_out_fraction = 0.2
    config.training.update(num_rounds=2, evaluation_interval=1)
    config.algorithm.local_training.update(
      num_local_epochs=1, augmentation='none'
    )
  else:
    config.dataset.source.options.folder = 'data/cifar10'
  if 'cohort_size' in config.algorithm:
    config.algorithm.cohort_size = (
      config.dataset.partition.num_clients * 19 // 20
    )
  return config
