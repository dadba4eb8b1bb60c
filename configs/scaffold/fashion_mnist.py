r"""SCAFFOLD on Fashion-MNIST, 100 clients of two or five classes.

  python -m binaries.run --config=configs/scaffold/fashion_mnist.py:two_classes \
    --workdir=runs/scaffold_fashion_mnist --config.dataset.source.options.folder=DIR

Clients, network and variants: configs/shards.py. With
`--config.model.decomposition.num_atoms=9` atoms and coefficients of kernels are
averaged separately (filter decomposition around SCAFFOLD).

The full size has not been run.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import shards


def get_config(variant: str = 'two_classes') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `shards.VARIANTS`."""
  config = shards.get_config('scaffold', variant)
  config.name = f'SCAFFOLD on Fashion-MNIST, {variant}'
  return config
