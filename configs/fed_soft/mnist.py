r"""FedSoft on MNIST or Fashion-MNIST, upright and rotated, 100 clients.

  python -m binaries.run --config=configs/fed_soft/mnist.py:mnist_idx \
    --workdir=runs/mnist --config.dataset.source.options.folder=DIR

DIR holds the four original files (train-images-idx3-ubyte.gz and so on). The
variants `mnist` and `fashion_mnist` let TensorFlow Datasets download the set;
`mnist_idx` and `fashion_mnist_idx` read the files of a folder. `smoke` needs
no data: it runs the scikit-learn digits for 3 rounds.

100 clients of 100 to 200 training images that mix upright and rotated images
10:90 or 90:10, K = 30, a perceptron with 64 hidden units. Accuracies to
expect: docs/reproduction/fed_soft.md.
"""

import ml_collections

from configs import falling_rates, pretrained

_VARIANTS = (
  'mnist',
  'fashion_mnist',
  'mnist_idx',
  'fashion_mnist_idx',
  'smoke',
)


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  if variant not in _VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(_VARIANTS)}, got {variant!r}'
    )
  config = ml_collections.ConfigDict()
  config.name = f'FedSoft on {variant.removesuffix("_idx")}, 10:90'
  config.seed = 0
  config.dataset = {
    'source': _source(variant),
    'distributions': {'kind': 'rotations', 'quarter_turns': (0, 1)},
    'partition': {
      'law': '10:90',
      'num_clients': 100,
      'num_unseen_clients': 10,
    },
    'sizes': {'law': 'uniform', 'minimum': 100, 'maximum': 200},
    'splits': {
      'validation_ratio': 0.2,
      'test_ratio': 0.2,
      'held_out_fraction': 0.2,
    },
    'seed': 0,
    'num_shards': 4,
  }
  config.model = {
    'name': 'mlp',
    'hidden_sizes': (64,),
    'normalization': 'none',
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
  config.algorithm = {
    'name': 'fed_soft',
    'num_clusters': 2,
    'cohort_size_per_cluster': 30,
    'estimation_interval': 2,
    'importance_smoother': 1e-4,
    'proximal_weight': 0.01,
    'selection': 'without_replacement',
    'start': 'own',
    'download': 'all_centers',
    'estimation': 'batched',
    'initial_local_models': 'common',
    'fixed_importance': (),
    'loss_scale': 1.0,
    'local_training': {
      'num_local_epochs': 5,
      'batch_size': 10,
      'optimizer': {'name': 'adam', 'learning_rate': 1e-3},
      'augmentation': 'none',
      'solver': 'descent',
      'weight_decay': 0.0,
      'num_local_steps': 0,
    },
  }
  config.training = {
    'num_rounds': 30,
    'evaluation_interval': 3,
    'checkpoint_interval': 10,
    'client_states': 'memory',
    'restarts': {'num_restarts': 1, 'num_rounds': 5},
    'dropout_rate': 0.0,
  }
  config.falling_rates = falling_rates.none()
  config.runtime = {
    'name': 'vectorized',
    'vectorized': {
      'clients_per_block': 0,
      'num_parallel_blocks': 0,
      'memory_budget_mib': 0,
    },
    'tff': {'workers': ()},
  }
  if variant == 'smoke':
    config.dataset.partition.update(
      {'num_clients': 12, 'num_unseen_clients': 2}
    )
    config.dataset.sizes.update({'minimum': 40, 'maximum': 80})
    config.algorithm.cohort_size_per_cluster = 4
    config.training.num_rounds = 3
  return config


def _source(variant: str) -> dict:
  if variant == 'smoke':
    return {'name': 'digits', 'options': {}}
  if variant.endswith('_idx'):
    return {'name': 'idx', 'options': {'folder': 'data/mnist'}}
  return {'name': 'tfds', 'options': {'name': variant, 'download': True}}
