r"""Filter decomposition on Fashion-MNIST, 100 clients of two or five classes.

  python -m binaries.run --config=configs/filter_decomposition/fashion_mnist.py \
    --workdir=runs/filter_decomposition \
    --config.dataset.source.options.folder=DIR

Clients, network and variants: configs/shards.py. FedAvg is the host and all
kernels have nine atoms; the same run without decomposition, from an equal start, has
`--config.model.decomposition.trained=kernels`. Other hosts have other options: run
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
  config = shards.get_config('filter_decomposition', variant)
  config.name = f'Filter decomposition on Fashion-MNIST, {variant}'
  config.model.decomposition.num_atoms = 9
  config.algorithm.local_atoms.update(
    local_training=config.algorithm.host.local_training
  )
  if variant == 'smoke':
    config.algorithm.schedule.slow_period = 2
    config.algorithm.local_atoms.own = 'atoms'
  return config
