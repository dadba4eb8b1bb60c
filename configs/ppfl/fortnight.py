r"""PPFL on the simulated fortnight.

  python -m docs.examples.fortnight --folder=data/fortnight --day=1
  python -m binaries.nightly --config=configs/ppfl/fortnight.py \
    --workdir=runs/ppfl_fortnight --as_of=2026-11-01

The data, the model and the variant `smoke`: configs/fortnight.py.
"""

import ml_collections

from configs import fortnight


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `fortnight.get_config`."""
  config = fortnight.get_config('ppfl', variant)
  config.name = 'PPFL on the simulated fortnight'
  config.algorithm.update(
    membership={'learning_rate': 3.0, 'gradient_weight': 'none'},
    local_training={'optimizer': {'learning_rate': 0.3}},
  )
  return config
