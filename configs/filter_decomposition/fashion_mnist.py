r"""Filter decomposition on Fashion-MNIST, 100 clients of two or five classes.

  python -m binaries.run --config=configs/filter_decomposition/fashion_mnist.py \
    --workdir=runs/filter_decomposition \
    --config.dataset.source.options.folder=DIR

Clients, network and variants: configs/shards.py. FedAvg is the host and all
kernels have nine atoms; the same run without decomposition has
`--config.model.decomposition.num_atoms=0`. Other hosts have other options: run
configs/{scaffold,fed_dyn,fed_dc}/fashion_mnist.py with nine atoms, which is the
same as decomposition around them. FedProx:
`--config.algorithm.host.proximal_weight=0.0001`.

Local atoms (section 4.1): `--config.algorithm.local_atoms.own=atoms`. Algorithm 2
with beta = 1/5: `--config.algorithm.schedule.slow_period=5`.

The full size has not been run.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds, with local
atoms and every other round fast.
"""

import ml_collections

from configs import shards


def get_config(variant: str = 'two_classes') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `shards.VARIANTS`."""
  config = shards.get_config(variant)
  config.name = f'Filter decomposition on Fashion-MNIST, {variant}'
  config.model.decomposition.num_atoms = 9
  config.algorithm = {
    'name': 'filter_decomposition',
    'host': {
      'name': 'fed_avg',
      'cohort_size': shards.cohort_size(variant),
      'proximal_weight': 0.0,
      'server_optimizer': {'name': 'sgd', 'learning_rate': 1.0},
      'loss_scale': 1.0,
      'local_training': shards.local_training(variant),
    },
    'averaging': 'factors',
    'schedule': {
      'slow_period': 1,
      'fast_groups': ('atoms', 'head'),
      'fast_rounds': 'discard',
      'downlink_accounting': 'paper',
    },
    'local_atoms': {
      'own': 'nothing',
      'in_every_round': True,
      'refit_interval': 0,
      'num_refit_epochs': 10,
      'loss_scale': 1.0,
      'local_training': shards.local_training(variant),
    },
  }
  if variant == 'smoke':
    config.algorithm.schedule.slow_period = 2
    config.algorithm.local_atoms.own = 'atoms'
  return config
