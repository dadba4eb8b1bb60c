r"""IFCA on FedSoft's letters (Ruan and Joe-Wong 2021, Table 2).

  python -m binaries.run --config=configs/ifca/letters.py:small_10_90 \
    --workdir=runs/ifca_letters --config.dataset.source.options.folder=DIR

The clients, network, solver and variants of configs/fed_soft/letters.py, and the cohort
size of configs/letters.py, as the paper does not give it.
Results: docs/reproduction/fed_soft.md.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import letters


def get_config(variant: str = '10_90') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `letters.VARIANTS`."""
  config = letters.get_config('ifca', variant)
  config.name = f'IFCA on letters, {variant}'
  return config
