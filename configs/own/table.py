r"""Own table, a CSV or Parquet file.

  python -m binaries.run --config=configs/own/table.py --workdir=runs/own_table \
    --config.dataset.source.options.path=data/visits.csv \
    --config.dataset.source.options.client_column=user_id \
    --config.dataset.source.options.label_column=outcome \
    --config.dataset.source.options.classes="('no', 'yes')" \
    --config.dataset.source.options.features="({'name': 'age'}, {'name': 'city', 'type': 'category'})"

Without `classes` it is a regression. With `--config.dataset.source.options.time_column`
add `--config.dataset.splits.split_by=client_time`. `python -m binaries.inspect
--path=data/visits.csv` prints a config file with these options, guessed from the file.
A variant is an algorithm of `own_data.ALGORITHMS`: `configs/own/table.py:ifca`.
docs/own_data.md
"""

import ml_collections

from configs import own_data


def get_config(variant: str = 'fed_avg') -> ml_collections.ConfigDict:
  """Returns the config with an algorithm of `own_data.ALGORITHMS`."""
  config = own_data.get_config(variant, source='table', model='mlp')
  config.name = 'Own table'
  return config
