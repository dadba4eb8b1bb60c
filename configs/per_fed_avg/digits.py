r"""Per-FedAvg on real handwritten digits, upright and rotated.

  python -m binaries.run --config=configs/per_fed_avg/digits.py \
    --workdir=runs/per_fed_avg_digits

The same 24 clients as configs/fed_avg/digits.py, and 40 local steps, in place of 65 on
average.
Accuracy after 30 rounds, mean and standard deviation over the seeds 0 to 4 of
training (`--config.seed`): 90.1 % +- 1.0 on the clients' test examples with the
model adapted by one step on their training examples, 90.6 % +- 1.0 with the
global model itself, which has 92.2 % +- 0.9 on held-out upright digits and
90.0 % +- 0.9 on rotated ones. Adapting gains nothing here: the clients share
their labels, and one model fits both orientations.

The variant `smoke` is the same with 3 rounds.
"""

import ml_collections

from configs import digits


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `digits.get_config`."""
  config = digits.get_config('per_fed_avg', variant)
  config.name = 'Per-FedAvg on digits, 10:90'
  config.algorithm.num_local_steps = 40
  return config
