"""Shared config of PPFL's natural clients.

`configs/fed_avg/natural_clients.py` and others extend it. These are the practical
data of Di, Yang, Ye and Chang (arXiv 2310.14337), as Pillutla et al. (2022,
arXiv:2204.03809) prepare them:

  emnist          federated EMNIST's writers with at least 100 training and 25 test
                  images; ResNet-18 with group norm, 11,199,486 parameters; 10
                  clients in each of 2,000 rounds
  stack_overflow  1,000 accounts with 100 to 1,000 training and 10 to 1,000 test
                  posts; a vocabulary of 10,000 words, the first 20 words of a post; a
                  transformer of four blocks, 5,731,092 parameters; 50 clients in each
                  of 1,000 rounds. Accuracy counts words, no special tokens

They read TFF's databases, unpacked, from data/federated_emnist or
data/stack_overflow: `config.dataset.source.options.folder`. Training and test
examples are those of the database.

Deviations from their code: the 1,000 accounts are drawn by the hash of their ids,
pixels are not standardized, and learning rates are constant. On `stack_overflow`
clients clip their gradients to a norm of 0.25, as in their code, except in pFedMe.
"""

import ml_collections

from configs import base

_MODELS = {
  'emnist': 'resnet18',
  'stack_overflow': 'transformer',
  'smoke': 'mlp',
}
_SOURCES = {
  'emnist': 'federated_emnist',
  'stack_overflow': 'stack_overflow',
  'smoke': 'softmax_groups',
}
VARIANTS = tuple(_MODELS)


def get_config(algorithm: str, variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`.

  Sets the options that the methods share if the algorithm has them: the cohort size,
  one epoch of local training, and the server optimizer.
  """
  base.check(variant, VARIANTS)
  config = base.experiment(
    algorithm, model=_MODELS[variant], source=_SOURCES[variant], law='natural'
  )
  config.seed = config.dataset.seed = 1
  config.dataset.splits.update(held_out_fraction=0.0, split_by='client')
  source_options = config.dataset.source.options
  if variant == 'smoke':
    source_options.update(num_clients_per_group=4, max_examples=80)
    config.dataset.distributions.kind = 'native'
    config.dataset.partition.num_clients = 12
    config.dataset.splits.test_ratio = 0.25
    config.model.hidden_sizes = (16,)
  else:
    source_options.update(folder=f'data/{_SOURCES[variant]}', min_train=100)
    config.dataset.splits.client_test = 'dealt'
    config.dataset.num_shards = 8
    # A thousand models do not fit in memory.
    config.training.client_states = 'disk'
  if variant == 'emnist':
    source_options.min_test = 25
  elif variant == 'stack_overflow':
    source_options.update(
      min_test=10,
      num_clients=1000,
      draw_seed=1,
      examples_are='posts',
      max_posts=1000,
      length=20,
      vocabulary_size=10_000,
    )
  num_rounds = {'emnist': 2000, 'stack_overflow': 1000, 'smoke': 2}[variant]
  config.training.update(
    num_rounds=num_rounds,
    evaluation_interval=max(num_rounds // 10, 1),
    checkpoint_interval=100,
  )
  config.algorithm.cohort_size = {
    'emnist': 10,
    'stack_overflow': 50,
    'smoke': 4,
  }[variant]
  is_text = variant == 'stack_overflow'
  for training in base.trainings(config):
    training.batch_size = 64 if is_text else 32
    training.optimizer.learning_rate = 1.0 if is_text else 0.5
    training.optimizer.clip_norm = 0.25 if is_text else 0.0
  if is_text and 'server_optimizer' in config.algorithm:
    config.algorithm.server_optimizer.update(name='adam', learning_rate=5e-4)
  return config


def pull(variant: str) -> float:
  """Returns the proximal weight of Ditto and pFedMe."""
  return 1e-3 if variant == 'stack_overflow' else 0.1
