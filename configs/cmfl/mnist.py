r"""CMFL at its paper's sizes on MNIST: 400 clients of two digits each.

  python -m binaries.run --config=configs/cmfl/mnist.py:similar \
    --workdir=runs/cmfl_mnist --config.dataset.source.options.folder=DIR

DIR holds the four original files (train-images-idx3-ubyte.gz and so on), of MNIST or
Fashion-MNIST. The variants are those of configs/committees.py: of 400
clients 40 are active, a committee of 16 and 24 training clients, of which 16 are
averaged (`literal`: 10). The model is a perceptron with 64 hidden units. The paper's
own data sets are FEMNIST, Sentiment140 and Shakespeare: femnist.py, sentiment140.py and
shakespeare.py beside this file. The learning rate of `repo` is that of the authors' own
data; `repo` was not run here. Results: docs/reproduction/cmfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits.
"""

import ml_collections

from configs import committees


def get_config(variant: str = 'similar') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `committees.VARIANTS`."""
  if variant == 'smoke':
    config = committees.get_smoke('mlp')
  else:
    config = committees.get_config(
      variant, 200, model='mlp', source='idx', law='shards'
    )
    config.dataset.source.options.folder = 'data/mnist'
    config.dataset.partition.update(
      num_clients=400, options={'shards_per_client': 2}
    )
    config.dataset.splits.test_ratio = 0.2
    config.dataset.num_shards = 4
  config.name = f'CMFL on MNIST, {variant}'
  return config
