r"""FedEM on FedSoft's letters (Ruan and Joe-Wong 2021, Table 2).

  python -m binaries.run --config=configs/fed_em/letters.py:small_10_90 \
    --workdir=runs/fed_em_letters --config.dataset.source.options.folder=DIR

The clients, network, solver and variants of configs/fed_soft/letters.py. The
paper does not give the cohort size: here 84 of 100 (16 of 20), which is
N (1 - (1 - K/N)^S) with S = 2 clusters, the paper's number of clients that train in a
round of FedSoft; with the unequal selection probabilities of 10:90 there are more,
about 95 (17.5).
Results: docs/reproduction/fed_soft.md.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import letters


def get_config(variant: str = '10_90') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `letters.VARIANTS`."""
  config = letters.get_config('fed_em', variant)
  config.name = f'FedEM on letters, {variant}'
  config.algorithm.cohort_size = config.dataset.partition.num_clients * 21 // 25
  return config
