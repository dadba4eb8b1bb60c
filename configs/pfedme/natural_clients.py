r"""pFedMe on PPFL's natural clients.

  python -m binaries.run --config=configs/pfedme/natural_clients.py:emnist \
    --workdir=runs/pfedme_emnist --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/natural_clients.py. The variant
`emnist` is pFedMe's Algorithm 1, with three steps to solve the problem on each batch;
`emnist_mean` is the second form (tff_algos/algorithms/pfedme.py), in which clients
train their own models with a proximal term to the mean of all models. Only sampled
clients train. In the paper (arXiv 2310.14337, Table 2), which starts from FedAvg's
model and fine-tunes the result, pFedMe has 94.14 % +- 0.06 on `emnist` and 25.08 % +-
0.06 on `stack_overflow`. Neither was run here: the databases were not available.

The variant `smoke` needs no data: 12 generated clients, 2 rounds.
"""

import ml_collections

from configs import base, natural_clients

_METHODS = ('moreau', 'mean')
# Learning rates of the solver; below, numbers of steps that are about an epoch.
_RATES = {'emnist': 0.01, 'stack_overflow': 0.1, 'smoke': 0.01}
_NUM_STEPS = {'emnist': 10, 'stack_overflow': 10, 'smoke': 2}


def get_config(variant: str = 'emnist') -> ml_collections.ConfigDict:
  """Returns the config of a variant of `natural_clients.VARIANTS`."""
  data, method = base.part(variant, natural_clients.VARIANTS, _METHODS)
  config = natural_clients.get_config('pfedme', data)
  config.name = f'pFedMe on natural clients, {variant}'
  config.algorithm.update(training_clients='cohort', weighting='examples')
  training = config.algorithm.local_training
  training.update(
    num_local_steps=_NUM_STEPS[data],
    batch_size=64 if data == 'stack_overflow' else 32,
    # With this rate a step moves to the solution of the local problem itself.
    client_learning_rate=1 / natural_clients.pull(data),
    proximal_weight=natural_clients.pull(data),
    num_proximal_steps=3,
    personal_learning_rate=_RATES[data],
  )
  if method == 'mean':
    config.algorithm.averaged = 'personalized'
    training.update(client_learning_rate=0.0, num_proximal_steps=1, start='own')
  return config
