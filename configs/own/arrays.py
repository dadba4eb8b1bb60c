r"""Own NumPy arrays.

  python -m binaries.run --config=configs/own/arrays.py --workdir=runs/own_arrays \
    --config.dataset.source.options.folder=data/arrays

The folder has x.npy, y.npy and client.npy, a row an example: features, labels and client
ids (texts); docs/sources.md says what the dtypes mean. From a notebook,
`tff_algos.from_arrays` writes them, and a config file of its own. A variant is an
algorithm of `own_data.ALGORITHMS`: `configs/own/arrays.py:ifca`. docs/own_data.md
"""

import ml_collections

from configs import own_data


def get_config(variant: str = 'fed_avg') -> ml_collections.ConfigDict:
  """Returns the config with an algorithm of `own_data.ALGORITHMS`."""
  config = own_data.get_config(variant, source='arrays', model='mlp')
  config.name = 'Own arrays'
  return config
