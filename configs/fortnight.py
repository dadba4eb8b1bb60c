"""Shared config of the simulated fortnight: 5 rounds a night, for 14 nights.

`configs/*/fortnight.py` extend it; docs/fortnight.md has the results. The raw data are
those of docs/examples/fortnight.py in data/fortnight: four features, three classes, 30
to 36 clients in three clusters, from day 6 on in four. A perceptron with 16 hidden
units, four cluster models.

A client's examples are split by time: the tests of a night are of its latest day, so
they are true on day 9, when the labels of the files of earlier days are permuted, but
for the three clients that left on day 7.

The variant `smoke` needs no data: 12 generated clients, 3 rounds.
"""

import ml_collections

from configs import base

VARIANTS = ('full', 'smoke')


def get_config(algorithm: str, variant: str) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`, with four clusters.

  Args:
    algorithm: Name of the algorithm.
    variant: One of `VARIANTS`.
  """
  base.check(variant, VARIANTS)
  is_smoke = variant == 'smoke'
  config = base.experiment(
    algorithm,
    model='mlp',
    source='softmax_groups' if is_smoke else 'csv',
    law='natural',
  )
  config.model.hidden_sizes = (16,)
  if is_smoke:
    config.dataset.source.options.update(
      num_clients_per_group=4, max_examples=80
    )
    config.dataset.distributions.kind = 'native'
    config.dataset.partition.num_clients = 12
  else:
    config.dataset.source.options.update(
      path='data/fortnight/*.csv',
      label_column='label',
      feature_columns=('f0', 'f1', 'f2', 'f3'),
      classes=('low', 'middle', 'high'),
      client_column='client',
      time_column='time',
    )
  config.dataset.splits.update(
    split_by='content' if is_smoke else 'client_time',
    validation_ratio=0.1,
    test_ratio=0.25,
    held_out_fraction=0.0,
  )
  config.algorithm.num_clusters = 4
  for training in base.trainings(config):
    training.update(num_local_epochs=5, optimizer={'learning_rate': 0.1})
  config.training.update(num_rounds=3 if is_smoke else 5, evaluation_interval=5)
  # Tracing of vectorized graphs would take longer than a night.
  config.runtime.vectorized.clients_per_block = 1
  return config
