"""Shared config of user-level differential privacy on MNIST.

`configs/*/private.py` extend it. 1,000 clients of 40 to 60 training images that mix
upright digits and digits rotated by 90 degrees 10:90 or 90:10; logistic regression,
7,850 parameters; 40 rounds, in each of which a client takes part with probability 0.1.
The noise is solved for `config.privacy.target_epsilon`, which is 4 with a delta of
1e-5, below 1 / clients; the clipping norm follows the median. Accuracies by epsilon:
docs/privacy.md.

The images are those of the original files in a folder, data/mnist:
`config.dataset.source.options.folder`. The variant `open` is not private: it samples
100 clients a round (FedSoft: 100 per cluster). The variant `smoke` needs no data: 12 clients of the scikit-learn
digits for 3 rounds.
"""

import ml_collections

from configs import base

VARIANTS = ('mnist', 'open', 'smoke')


def get_config(
  algorithm: str, variant: str, name: str
) -> ml_collections.ConfigDict:
  """Returns the config of one of `VARIANTS`; `name` is that of the algorithm."""
  base.check(variant, VARIANTS)
  is_smoke = variant == 'smoke'
  config = base.experiment(
    algorithm,
    model='logistic_regression',
    source='digits' if is_smoke else 'idx',
    law='10:90',
  )
  word = 'without' if variant == 'open' else 'with'
  config.name = f'{name} {word} differential privacy'
  if not is_smoke:
    config.dataset.source.options.folder = 'data/mnist'
  config.dataset.update(
    distributions={'kind': 'rotations', 'quarter_turns': (0, 1)},
    partition={'num_clients': 12 if is_smoke else 1000},
    sizes={'law': 'uniform', 'minimum': 40, 'maximum': 60},
    splits={'test_ratio': 0.2},
    num_shards=1,
  )
  if 'cohort_size' in config.algorithm:
    config.algorithm.cohort_size = 100 if variant == 'open' else 0
  for training in base.trainings(config):
    training.update(
      num_local_epochs=2, batch_size=20, optimizer={'learning_rate': 0.1}
    )
  config.training.update(
    num_rounds=3 if is_smoke else 40,
    evaluation_interval=3 if is_smoke else 40,
    checkpoint_interval=40,
  )
  if variant != 'open':
    config.privacy.update(
      target_epsilon=4.0,
      sampling_prob=0.5 if is_smoke else 0.1,
      clip_norm=0.5,
      adaptive_clipping={'target_quantile': 0.5},
    )
  if is_smoke:
    config.runtime.vectorized.clients_per_block = 1
  return config
