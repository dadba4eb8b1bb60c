r"""FedSoft on the simulated fortnight.

  python -m docs.examples.fortnight --folder=data/fortnight --day=1
  python -m binaries.nightly --config=configs/fed_soft/fortnight.py \
    --workdir=runs/fed_soft_fortnight --as_of=2026-11-01

The data, the model and the variant `smoke`: configs/fortnight.py.
"""

import ml_collections

from configs import fortnight


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `fortnight.get_config`."""
  config = fortnight.get_config('fed_soft', variant)
  config.name = 'FedSoft on the simulated fortnight'
  config.algorithm.update(
    cohort_size_per_cluster=10,
    proximal_weight=0.1,
  )
  return config
