"""pFedKM's clients of three classes: all of the experiment but the algorithm.

`configs/{pfedkm,pfedme,ifca,per_fed_avg,l2gd}/three_classes.py` add theirs. They
are the real data of Tang, Guo and Guo (2021), Table 2: 40 clients, all of them in
every round, three of ten classes each, 75 % of a client's images to train and 25 %
to test, in four columns:

  mnist_logistic         logistic regression, 100 rounds
  mnist_network          one hidden layer of 128, 100 rounds
  fashion_mnist_network  one hidden layer of 128, 100 rounds
  cifar10_network        two convolutions and two dense layers, 200 rounds

They read the original files of a folder: `config.dataset.source.options.folder`,
by default data/mnist, data/fashion_mnist or data/cifar10 (the binary version).
With the suffix `_tfds` TensorFlow Datasets downloads the set.

What the paper does not say:

* Which client has what: the recipe, its constants and the seed 1 are those of
  docs/partitions.md ("The papers' partitions"). A sweep keeps that one partition
  by --fixed_dataset. MNIST and Fashion-MNIST deal their training images; their
  official tests are held out whole. CIFAR-10 deals all 60,000.
* Batch size and solver: those of pFedMe's public code, but for the solver's
  learning rate on MNIST and Fashion-MNIST, where 0.05 replaces 0.1 and 0.09; with
  lambda = 15 these overshoot. After 25 rounds of pFedKM (K = 2, seed 0) the
  personalized models had a test accuracy of 86.4 % with 0.05 (0.02: 86.3 %) and
  46.8 % with 0.1 on `mnist_logistic`, of 88.9 % with 0.05 and 57.6 % with 0.09 on
  `mnist_network`; their cluster models had 66.9 (66.9) and 67.9 %, 70.5 and 74.5 %.
  Weight decay is for the regression alone, which the paper calls regularised.
* How pixels are scaled: here they are values from 0 to 1. That code standardises
  each pixel of MNIST and scales CIFAR-10 to [-1, 1]; neither is offered.
* Whether Table 2 shows the last round or the best one. Here nobody has validation
  examples, so there is only the last. With
  `--config.dataset.splits.validation_ratio=0.2 --config.dataset.splits.test_ratio=0.4`
  an eighth of a client's images validate, the same quarter tests, and
  `evaluation/summary.json` has `best_by_validation`, too.
* Which accuracy Table 2 shows. `participating/test/personalized/accuracy` is that
  of the models which the algorithm is for; that of the uploaded ones,
  `participating/test/local/accuracy`, stands beside it with
  `--config.algorithm.local_training.kept=both`.
"""

import ml_collections

from configs import falling_rates, pretrained

COLUMNS = (
  'mnist_logistic',
  'mnist_network',
  'fashion_mnist_network',
  'cifar10_network',
)
NUM_CLIENTS = 40
_TFDS = '_tfds'


def get_config(
  variant: str, columns: tuple[str, ...] = COLUMNS
) -> ml_collections.ConfigDict:
  """Returns the config of one variant without `algorithm` and `name`.

  Args:
    variant: A column, maybe with `_tfds`, or `'smoke'`.
    columns: Those that the algorithm was run on.
  """
  variants = (*columns, *(column + _TFDS for column in columns), 'smoke')
  if variant not in variants:
    raise ValueError(
      f'variant must be one of {", ".join(variants)}, got {variant!r}'
    )
  column = variant.removesuffix(_TFDS)
  is_cifar = column == 'cifar10_network'
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.dataset = _dataset(variant)
  config.model = _model(column)
  config.training = {
    'num_rounds': 200 if is_cifar else 100,
    'evaluation_interval': 5 if is_cifar else 1,
    'checkpoint_interval': 50,
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
    _make_smoke(config)
  return config


def moreau_envelope(variant: str) -> dict:
  """Returns the local training of pFedKM and pFedMe."""
  column = variant.removesuffix(_TFDS)
  return {
    'num_local_steps': 10,
    'batch_size': 20,
    'client_learning_rate': client_learning_rate(variant),
    'proximal_weight': 15.0,
    'num_proximal_steps': 5,
    'proximal_tolerance': 0.0,
    'personal_learning_rate': 0.01 if column == 'cifar10_network' else 0.05,
    'weight_decay': 0.001 if column == 'mnist_logistic' else 0.0,
    'start': 'received',
    'kept': 'personalized',
  }


def client_learning_rate(variant: str) -> float:
  """Returns the learning rate that Table 2 prints over the column."""
  return 0.03 if variant.startswith('cifar10') else 0.005


def _dataset(variant: str) -> dict:
  is_cifar = variant.startswith('cifar10')
  return {
    'source': _source(variant),
    'distributions': {'kind': 'identity'},
    'partition': {
      'law': 'consecutive_classes',
      'num_clients': NUM_CLIENTS,
      'options': {
        'classes_per_client': 3,
        'offset': 200 if is_cifar else 180,
        'reserve': 40 if is_cifar else 400,
      },
    },
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 1 / 3,
      'held_out_fraction': 0.0,
      'split_by': 'client',
      'pool_test_split': is_cifar,
    },
    'seed': 1,
    'num_shards': 4,
  }


def _source(variant: str) -> dict:
  name = variant.removesuffix(_TFDS).rpartition('_')[0]
  if variant.endswith(_TFDS):
    return {'name': 'tfds', 'options': {'name': name, 'download': True}}
  return {
    'name': 'cifar' if name == 'cifar10' else 'idx',
    'options': {'folder': f'data/{name}'},
  }


def _model(column: str) -> dict:
  if column == 'mnist_logistic':
    model = {'name': 'logistic_regression'}
  elif column == 'cifar10_network':
    model = {'name': 'small_cnn'}
  else:
    model = {'name': 'mlp', 'hidden_sizes': (128,), 'normalization': 'none'}
  return {
    **model,
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }


def _make_smoke(config):
  config.dataset.source = {'name': 'digits', 'options': {}}
  config.dataset.partition.num_clients = 12
  config.dataset.partition.options.update({'offset': 0, 'reserve': 40})
  config.dataset.num_shards = 1
  config.training.num_rounds = 2
