r"""Own images, in folders client/class/file.

  python -m binaries.run --config=configs/own/images.py --workdir=runs/own_images \
    --config.dataset.source.options.folder=data/images

PNG, JPEG or BMP files, resized to 32 x 32 pixels of three channels
(`--config.dataset.source.options.shape='(28, 28, 1)'` for others). With
`--config.dataset.source.options.table=files.csv` a CSV file in the folder lists them:
its columns path, label and client. A variant is an algorithm of `own_data.ALGORITHMS`:
`configs/own/images.py:ifca`. docs/own_data.md
"""

import ml_collections

from configs import own_data


def get_config(variant: str = 'fed_avg') -> ml_collections.ConfigDict:
  """Returns the config with an algorithm of `own_data.ALGORITHMS`."""
  config = own_data.get_config(variant, source='images', model='small_cnn')
  config.name = 'Own images'
  return config
