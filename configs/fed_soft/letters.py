r"""FedSoft on letters (paper, Tables 1, 2, 4 and 5, Figure 2).

  python -m binaries.run --config=configs/fed_soft/letters.py:small_10_90 \
    --workdir=runs/letters --config.dataset.source.options.folder=DIR

DIR holds EMNIST's original files: `emnist-letters-*` for the small variants,
`emnist-byclass-*` for those at the paper's size, `10_90`, `30_70`, `linear`,
`random` (two distributions) and `four`: configs/letters.py. K = 60 of 100 (12
of 20), tau = 2, sigma = 1e-4, lambda = 0.1, Adam. Results:
docs/reproduction/fed_soft.md.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import letters


def get_config(variant: str = '10_90') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `letters.VARIANTS`."""
  config = letters.get_config('fed_soft', variant)
  config.name = f'FedSoft on letters, {variant}'
  config.algorithm.cohort_size_per_cluster = (
    config.dataset.partition.num_clients * 3 // 5
  )
  return config
