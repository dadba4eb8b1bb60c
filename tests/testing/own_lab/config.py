"""The half step on rings: clients with a majority of one class."""

from configs import base


def get_config():
  """Returns the config."""
  config = base.experiment(
    'half_step', model='ring_net', source='rings', law='dirichlet'
  )
  config.name = 'Rings'
  config.model.width = 24
  config.dataset.partition.num_clients = 4
  config.dataset.partition.options.concentration = 1.0
  config.dataset.splits.test_ratio = 0.5
  config.dataset.splits.split_by = 'client'
  config.algorithm.local_training.num_local_epochs = 10
  config.algorithm.local_training.optimizer.learning_rate = 0.3
  config.training.num_rounds = 8
  config.runtime.vectorized.clients_per_block = 1
  return config
