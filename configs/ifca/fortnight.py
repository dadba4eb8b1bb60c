r"""IFCA on the simulated fortnight.

  python -m docs.examples.fortnight --folder=data/fortnight --day=1
  python -m binaries.nightly --config=configs/ifca/fortnight.py \
    --workdir=runs/ifca_fortnight --as_of=2026-11-01

The data, the model and the variant `smoke`: configs/fortnight.py.
"""

import ml_collections

from configs import fortnight


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `fortnight.get_config`."""
  config = fortnight.get_config('ifca', variant)
  config.name = 'IFCA on the simulated fortnight'
  config.algorithm.cohort_size = 0
  config.algorithm.initialization.mode = 'k-means++'
  return config
