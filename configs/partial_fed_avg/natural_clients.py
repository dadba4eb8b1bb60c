r"""Partial personalization on PPFL's natural clients.

  python -m binaries.run --config=configs/partial_fed_avg/natural_clients.py:emnist \
    --workdir=runs/partial_emnist --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/natural_clients.py. Each client
trains its private weights, then the shared weights (FedAlt), and after the last round
the private weights once more. In the variant `emnist` the output layer is private, as
in the paper (also in `stack_overflow`, where it is not tied to the embeddings); in
`emnist_block` the last residual block or transformer block is private, and in
`emnist_body` all but the output layer (LG-FedAvg). The authors' adapters are not
offered. In the paper (arXiv 2310.14337, Table 2), which starts from FedAvg's model,
Partial FL has 94.07 % +- 0.05 on `emnist` and 25.06 % +- 0.03 on `stack_overflow`.
Neither was run here: the databases were not available.

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
    personalization_interval=config.training.get_oneway_ref('num_rounds'),
  )
  return config
