"""Shared config of own data, with natural clients.

`configs/own/*.py` extend it, and so do the files that `binaries.inspect` and
`tff_algos.from_arrays` and its like write. Each client's examples are split about
70 : 10 : 20 (by time only with `splits.split_by='client_time'`); clients with less than
5 are left out. 20 rounds with cohorts of half of the clients, at most 20, which FedSoft
divides among its clusters; `configs/own/*.py` know no number of clients and take 5.
"""

import math

import ml_collections

from configs import base

ALGORITHMS = ('fed_avg', 'ditto', 'fed_em', 'fed_soft', 'fine_tuning', 'ifca')


def get_config(
  algorithm: str, *, source: str, model: str, num_clients: int = 10
) -> ml_collections.ConfigDict:
  """Returns the config with one of `ALGORITHMS`.

  Args:
    algorithm: Name of the algorithm, the variant of the config file.
    source: Name of the source.
    model: Name of the model.
    num_clients: Number of clients, for the size of the cohorts.
  """
  base.check(algorithm, ALGORITHMS)
  config = base.experiment(algorithm, model=model, source=source, law='natural')
  config.dataset.splits.update(
    split_by='client',
    validation_ratio=0.15,
    test_ratio=0.3,
    held_out_fraction=0.0,
  )
  config.dataset.partition.options.min_examples = 5
  cohort_size = min(max(num_clients // 2, 1), 20)
  if algorithm == 'fed_soft':
    config.algorithm.cohort_size_per_cluster = math.ceil(
      cohort_size / config.algorithm.num_clusters
    )
  else:
    config.algorithm.cohort_size = cohort_size
  for training in base.trainings(config):
    training.batch_size = 32
  config.training.update(num_rounds=20, evaluation_interval=5)
  return config
