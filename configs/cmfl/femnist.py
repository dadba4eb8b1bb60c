r"""CMFL at its paper's sizes on handwritten letters, or on FEMNIST itself.

  python -m binaries.run --config=configs/cmfl/femnist.py:similar \
    --workdir=runs/cmfl_letters --config.dataset.source.options.folder=DIR

DIR holds the IDX files of EMNIST letters. They have no writers, so 355 clients, a
tenth of FEMNIST's number of writers, divide each of the 26 classes by a Dirichlet draw
of concentration 0.3. The other variants are those of configs/committees.py: 35 clients
are active, a committee of 14 and 21 training clients, of which 14 are averaged.

The variant `writers` is `similar` on LEAF's FEMNIST (3,550 writers, Table II of the
paper; 62 classes, where its text has 64 categories); it was not run, as LEAF's JSON
files were not available. Its network is a small convolutional network for 28 x 28
images.

The variant `alexnet` is `writers` with the paper's network and learning rate: AlexNet
on images resized to 224 x 224, 57,242,366 parameters, no dropout. It was not run
either. The committee scores every upload, so memory must hold those of 355 active
clients: 229 MB each, 81 GB in total. With `--config.model.image_side=63
--config.model.hidden_sizes="(256,)"` an upload has 10 MB.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits.
"""

import ml_collections

from configs import base, committees

VARIANTS = (*committees.VARIANTS, 'writers', 'alexnet')


def get_config(variant: str = 'similar') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  base.check(variant, VARIANTS)
  if variant == 'smoke':
    config = committees.get_smoke('letters_cnn')
  elif variant in committees.VARIANTS:
    config = committees.get_config(
      variant, 200, model='letters_cnn', source='emnist', law='dirichlet'
    )
    config.dataset.source.options.folder = 'data/emnist'
    config.dataset.partition.update(
      num_clients=355, options={'concentration': 0.3, 'min_examples': 20}
    )
    config.dataset.splits.test_ratio = 0.2
    config.dataset.num_shards = 4
  else:
    config = _writers(variant)
  config.name = f'CMFL on letters, {variant}'
  return config


def _writers(variant):
  is_alexnet = variant == 'alexnet'
  config = committees.get_config(
    'similar',
    200,
    model='alexnet' if is_alexnet else 'letters_cnn',
    source='femnist',
    law='natural',
  )
  config.dataset.source.options.folder = 'data/femnist'
  config.dataset.partition.num_clients = 3550
  config.dataset.splits.update(
    split_by='client', test_ratio=1 / 9, held_out_fraction=0.0
  )
  config.dataset.num_shards = 4
  if is_alexnet:
    config.algorithm.local_training.optimizer.learning_rate = 0.001
  return config
