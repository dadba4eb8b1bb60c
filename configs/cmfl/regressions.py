r"""CMFL on linear regressions, within what its theory proves.

  python -m binaries.run --config=configs/cmfl/regressions.py:dissimilar \
    --workdir=runs/cmfl_regressions
  python -m binaries.bounds \
    --config=configs/cmfl/regressions.py:dissimilar \
    --workdir=runs/cmfl_regressions

The second command repeats the rounds and compares them with the bound of Theorem 1
(Che et al., TPDS 2022). 40 clients hold 50 to 200 examples of two regressions in 5
dimensions, each mostly of one of the two; a weight decay makes every client's
objective strongly convex. One step a round on all examples is tau = 1 without noise.

The variants are those of configs/committees.py with 20 of 40 clients active: a
committee of 8 and 12 training clients, of whom 8 are averaged (`literal`: 5).
`smoke` has 8 clients and 3 rounds.
"""

import ml_collections

from configs import committees, pretrained


def get_config(variant: str = 'dissimilar') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `committees.VARIANTS`."""
  config = committees.get_config(variant, 100)
  config.name = f'CMFL on linear regressions, {variant}'
  config.algorithm.committee.active_rate = 1.0 if variant == 'smoke' else 0.5
  config.algorithm.loss_scale = 0.5
  config.algorithm.local_training.update(
    {'batch_size': 10_000, 'weight_decay': 0.1}
  )
  config.algorithm.local_training.optimizer.learning_rate = 0.05
  config.dataset = {
    'source': {
      'name': 'linear_regression',
      'options': {
        'num_sources': 2,
        'num_features': 5,
        'theta_spread': 10.0,
        'theta_spread_is': 'variance',
        'num_examples_per_source': 5_000,
        'num_held_out_per_source': 1_000,
        'theta_seed': 0,
      },
    },
    'distributions': {'kind': 'native'},
    'partition': {'law': '10:90', 'num_clients': 40, 'num_unseen_clients': 0},
    'sizes': {'law': 'uniform', 'minimum': 50, 'maximum': 200},
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.25,
      'held_out_fraction': 0.0,
    },
    'seed': 0,
    'num_shards': 1,
  }
  config.model = {
    'name': 'linear_regression',
    'use_bias': False,
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
  if variant == 'smoke':
    config.dataset.partition.num_clients = 8
    config.dataset.sizes.update({'minimum': 20, 'maximum': 40})
    config.dataset.source.options.update(
      {'num_examples_per_source': 500, 'num_held_out_per_source': 100}
    )
  return config
