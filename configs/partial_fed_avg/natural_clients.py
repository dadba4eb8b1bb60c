r"""Partial personalization on PPFL's natural clients.

  python -m binaries.run --config=configs/partial_fed_avg/natural_clients.py:emnist \
    --workdir=runs/partial_emnist --config.dataset.source.options.folder=DIR

The clients, networks and differences of configs/natural_clients.py; each client trains
its private weights, then the shared ones (FedAlt), and after the last round the private
ones once more. Of `emnist` alone the output layer is private, as the paper says, on
`stack_overflow` no longer tied to the embeddings; `emnist_block` has the last
transformer block or residual block private, and `emnist_body` all but the output layer
(LG-FedAvg). The authors' adapters are not offered. In the paper (arXiv 2310.14337,
Table 2), which starts from FedAvg's model, Partial FL has 94.07 % +- 0.05 on `emnist`
and 25.06 % +- 0.03 on `stack_overflow`. Neither was run here: the databases are not at
hand.

The variant `smoke` needs no data: 12 generated clients, 2 rounds.
"""

import ml_collections

from configs import base, natural_clients

_METHODS = ('output', 'block', 'body')
_BLOCKS = {
  'emnist': 'stage_3/block_1',
  'stack_overflow': 'block_3',
  'smoke': 'dense_0',
}


def get_config(variant: str = 'emnist') -> ml_collections.ConfigDict:
  """Returns the config of a variant of `natural_clients.VARIANTS`."""
  data, method = base.part(variant, natural_clients.VARIANTS, _METHODS)
  config = natural_clients.get_config('partial_fed_avg', data)
  config.name = f'Partial personalization of natural clients, {variant}'
  if data == 'stack_overflow' and method != 'block':
    config.model.decoder = 'untied'
  private = {
    'output': 'last_layer',
    'block': _BLOCKS[data],
    'body': 'all_but_last_layer',
  }[method]
  config.algorithm.update(
    private=(private,),
    schedule='private_first',
    personalization_interval=config.training.num_rounds,
  )
  return config
