r"""LG-FedAvg and local training on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/partial_fed_avg/planted_groups.py:mnist \
    --workdir=runs/lg_fed_avg_mnist_groups \
    --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/planted_groups.py. The variant
`mnist` is LG-FedAvg (private body, shared head), `mnist_local` is local training. In
the paper (arXiv 2310.14337, Table 1) LG-FedAvg and Local have 96.95 % +- 0.07, 96.71 %
+- 0.05 on `mnist`, 71.30 % +- 1.31 and 54.10 % +- 1.27 on `cifar10`, 69.34 % (FedAvg's)
and 66.13 % +- 0.08 on `synthetic`. Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import base, planted_groups

_METHODS = ('lg_fed_avg', 'local')
_LEARNING_RATES = {
  'lg_fed_avg': {'cifar10': 0.01},
  'local': {'mnist': 0.03, 'cifar10': 0.03},
}


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of a variant of `planted_groups.VARIANTS`."""
  data, method = base.part(variant, planted_groups.VARIANTS, _METHODS)
  config = planted_groups.get_config(
    'partial_fed_avg', data, _LEARNING_RATES[method]
  )
  title = 'LG-FedAvg' if method == 'lg_fed_avg' else 'Clients alone'
  config.name = f'{title} on clients in planted groups, {data}'
  private = 'all_but_last_layer' if method == 'lg_fed_avg' else 'all'
  config.algorithm.update(
    private=(private,), cohort_size=0, initial_private_weights='own'
  )
  return config
