r"""Own texts, a column of a CSV or Parquet file.

  python -m binaries.run --config=configs/own/text.py --workdir=runs/own_text \
    --config.dataset.source.options.path=data/reviews.csv \
    --config.dataset.source.options.client_column=user_id \
    --config.dataset.source.options.label_column=stars \
    --config.dataset.source.options.classes="('1', '2', '3', '4', '5')"

The texts are in the column `text`: each is the tf-idf of its words, of the 1,000 that most
texts have. For another column, or the ids of its first words and a network that reads them
in their order:

  --config.dataset.source.options.features="({'name': 'review', 'type': 'text', 'encoding': 'ids', 'length': 50},)" \
  --config.model="{'name': 'word_lstm'}"

A variant is an algorithm of `own_data.ALGORITHMS`: `configs/own/text.py:ifca`.
docs/own_data.md
"""

import ml_collections

from configs import own_data


def get_config(variant: str = 'fed_avg') -> ml_collections.ConfigDict:
  """Returns the config with an algorithm of `own_data.ALGORITHMS`."""
  config = own_data.get_config(variant, source='table', model='mlp')
  config.name = 'Own texts'
  config.dataset.source.options.features = ({'name': 'text', 'type': 'text'},)
  return config
