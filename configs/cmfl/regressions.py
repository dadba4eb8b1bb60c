r"""CMFL on linear regressions that meet the assumptions of its theory.

  python -m binaries.run --config=configs/cmfl/regressions.py:dissimilar \
    --workdir=runs/cmfl_regressions
  python -m binaries.bounds \
    --config=configs/cmfl/regressions.py:dissimilar \
    --workdir=runs/cmfl_regressions

The second command repeats the rounds and compares them with the bound of Theorem 1
(Che et al., TPDS 2022). 40 clients hold 50 to 200 training examples of two regressions
in 5 dimensions, each mostly of one of the two; a weight decay makes every client's
objective strongly convex. One full-batch step per round is tau = 1 without noise.

The variants are those of configs/committees.py except `repo`, with 20 of 40 clients
active: a committee of 8 and 12 training clients, of which 8 are averaged (`literal`:
5). `smoke` has 8 clients and 3 rounds. The theorem does not cover `attacked`.
"""

import ml_collections

from configs import base, committees, regressions

VARIANTS = tuple(v for v in committees.VARIANTS if v != 'repo')


def get_config(variant: str = 'dissimilar') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  base.check(variant, VARIANTS)
  config = committees.get_config(
    variant,
    100,
    model='linear_regression',
    source='linear_regression',
    law='10:90',
  )
  config.name = f'CMFL on linear regressions, {variant}'
  regressions.set_small(config, is_smoke=variant == 'smoke')
  config.algorithm.local_training.update(
    batch_size=10_000, weight_decay=0.1, optimizer={'learning_rate': 0.05}
  )
  if variant != 'smoke':
    config.algorithm.committee.active_rate = 0.5
  return config
