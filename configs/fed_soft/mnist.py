r"""FedSoft on MNIST or Fashion-MNIST, upright and rotated, 100 clients.

  python -m binaries.run --config=configs/fed_soft/mnist.py:mnist_idx \
    --workdir=runs/mnist --config.dataset.source.options.folder=DIR

DIR holds the four original files (train-images-idx3-ubyte.gz and so on). The
variants `mnist` and `fashion_mnist` let TensorFlow Datasets download the set;
`mnist_idx` and `fashion_mnist_idx` read the files of a folder. `smoke` needs
no data: it runs the scikit-learn digits for 3 rounds.

100 clients of 100 to 200 training images that mix upright and rotated images
10:90 or 90:10, K = 30, a perceptron with 64 hidden units. Not an experiment of
the paper.
"""

import ml_collections

from configs import base

_VARIANTS = (
  'mnist',
  'fashion_mnist',
  'mnist_idx',
  'fashion_mnist_idx',
  'smoke',
)


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  base.check(variant, _VARIANTS)
  source, source_options = _source(variant)
  config = base.experiment('fed_soft', model='mlp', source=source, law='10:90')
  config.name = f'FedSoft on {variant.removesuffix("_idx")}, 10:90'
  config.dataset.source.options.update(source_options)
  config.dataset.update(
    distributions={'kind': 'rotations', 'quarter_turns': (0, 1)},
    partition={'num_clients': 100, 'num_unseen_clients': 10},
    sizes={'law': 'uniform', 'minimum': 100, 'maximum': 200},
    splits={'validation_ratio': 0.2, 'test_ratio': 0.2},
    num_shards=4,
  )
  config.algorithm.update(
    cohort_size_per_cluster=30,
    proximal_weight=0.01,
    local_training={
      'num_local_epochs': 5,
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3},
    },
  )
  config.training.update(num_rounds=30, evaluation_interval=3)
  if variant == 'smoke':
    config.dataset.partition.update(num_clients=12, num_unseen_clients=2)
    config.dataset.sizes.update(minimum=40, maximum=80)
    config.algorithm.cohort_size_per_cluster = 4
    config.training.num_rounds = 3
  return config


def _source(variant):
  if variant == 'smoke':
    return 'digits', {}
  if variant.endswith('_idx'):
    return 'idx', {'folder': f'data/{variant.removesuffix("_idx")}'}
  return 'tfds', {'name': variant, 'download': True}
