r"""pFedMe on pFedKM's synthetic data: 60 clients in three groups.

  python -m binaries.run --config=configs/pfedme/synthetic.py:logistic \
    --workdir=runs/pfedme_synthetic

The same data, models and constants as configs/pfedkm/synthetic.py, with one
global model: the baseline of Tang, Guo and Guo (2021), Table 2, which reports
79.21 % +- 0.02 for the regression and 76.12 % +- 0.01 for the network (one hidden
layer of 128).

One run of `logistic` with seed 0, test accuracy of all examples: personalized
models 79.9 %, the global model 26.5 %, local models (`kept='local'`) 64.5 %; the
majority class of each client 80.2 %.

Variants: `logistic`, `network`, and `smoke` (12 clients, 3 rounds).
"""

import ml_collections

from configs import softmax_groups


def get_config(variant: str = 'logistic') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `softmax_groups.VARIANTS`."""
  config = softmax_groups.get_config('pfedme', variant)
  config.name = 'pFedMe on softmax groups'
  return config
