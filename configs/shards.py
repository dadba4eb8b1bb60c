"""Shared config of clients with a few classes in shards.

`configs/{filter_decomposition,scaffold,fed_dyn,fed_dc}/fashion_mnist.py` extend
it. It is the setting of Chen and Qiu (2025), arXiv:2503.08652, section 6 and
appendix G, with Fashion-MNIST instead of CIFAR-10: 100 clients of two or five
classes, 600 images each, ten clients a round, batches of 10, SGD with learning
rate 0.01 and momentum 0.9, five local epochs, LeNet. A client is tested on all
test images of its classes.

They read the original files of a folder: `config.dataset.source.options.folder`,
by default data/fashion_mnist. With the suffix `_tfds` TensorFlow Datasets
downloads the set. `smoke` needs no data: 10 clients share the scikit-learn digits
for 2 rounds, on the smaller network `letters_cnn`.

There are 200 rounds, as in the paper's tables of personalized models, not 600.
"""

import ml_collections

from configs import base

_CLASSES = {'two_classes': 2, 'five_classes': 5}
_TFDS = '_tfds'
VARIANTS = (*_CLASSES, *(name + _TFDS for name in _CLASSES), 'smoke')


def get_config(algorithm: str, variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`, see `build`."""
  base.check(variant, VARIANTS)
  if variant == 'smoke':
    return build_smoke(algorithm)
  is_tfds = variant.endswith(_TFDS)
  config = build(algorithm, source='tfds' if is_tfds else 'idx')
  if is_tfds:
    options = {'name': 'fashion_mnist', 'download': True}
  else:
    options = {'folder': 'data/fashion_mnist'}
  config.dataset.source.options.update(options)
  config.dataset.partition.options.shards_per_client = _CLASSES[
    variant.removesuffix(_TFDS)
  ]
  return config


def build(
  algorithm: str, *, source: str, model: str = 'lenet'
) -> ml_collections.ConfigDict:
  """Returns a config with 100 clients of two classes, ten of which train per round.

  Sets cohort size and local training of the algorithm, or of its host.
  """
  config = base.experiment(algorithm, model=model, source=source, law='shards')
  config.dataset.update(
    partition={'num_clients': 100, 'options': {'shards_per_client': 2}},
    splits={'held_out_fraction': 0.0, 'client_test': 'all_of_classes'},
    num_shards=4,
  )
  trained(config).local_training.update(
    num_local_epochs=5, optimizer={'learning_rate': 0.01, 'momentum': 0.9}
  )
  config.training.update(
    num_rounds=200, evaluation_interval=10, checkpoint_interval=50
  )
  return config


def build_smoke(algorithm: str) -> ml_collections.ConfigDict:
  """Returns a config with 10 clients of scikit-learn digits, three per round."""
  config = build(algorithm, source='digits', model='letters_cnn')
  config.dataset.partition.num_clients = 10
  config.dataset.splits.held_out_fraction = 0.2
  config.dataset.num_shards = 1
  trained(config).cohort_size = 3
  trained(config).local_training.num_local_epochs = 1
  config.training.update(num_rounds=2, evaluation_interval=1)
  return config


def trained(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Returns the section of options of the algorithm, or of its host if it has one."""
  return config.algorithm.get('host', config.algorithm)
