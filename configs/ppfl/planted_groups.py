r"""PPFL on its clients in planted groups.

  python -m binaries.run --config=configs/ppfl/planted_groups.py:mnist \
    --workdir=runs/ppfl_mnist --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/planted_groups.py. On `mnist`
whole models are canonical, on `cifar10` heads. A variant names data and a method, for
example `mnist_falling_released`; without a method it is PPFL1:

  (none)         PPFL1, outputs are mixed (Algorithm 3)
  ppfl2          parameters are mixed; for heads and regressions the same function
  probabilities  probabilities are mixed (Eq. 11)
  released       as in the authors' release: theta first, then an epoch of mirror steps
                 on batches, equal client weights; its decaying learning rates are those
                 of the data `mnist_falling` and so on
  random_block   Algorithm 1

In the gradient of a membership a client's loss has the factor 1 relative to the
penalty, not p_i, with which memberships would move as many times slower as there are clients
than in the paper's figures. In the paper
(arXiv 2310.14337, Table 1) PPFL1 and PPFL2 have 99.01 % and 99.00 % +- 0.03 on `mnist`,
85.33 % +- 0.29 and 85.29 % +- 0.16 on `cifar10`, 75.91 % +- 0.59 on `synthetic`.
Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import base, planted_groups

METHODS = ('ppfl1', 'ppfl2', 'probabilities', 'released', 'random_block')
_MEMBERSHIP_RATES = {
  'cifar10': 0.5,
  'mnist_ppfl2': 0.5,
  'synthetic': 0.9,
  'synthetic_80_20': 0.9,
}


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of a variant of `planted_groups.VARIANTS` and METHODS."""
  data, method = base.part(variant, planted_groups.VARIANTS, METHODS)
  config = planted_groups.get_config('ppfl', data)
  config.name = f'PPFL on clients in planted groups, {variant}'
  data = planted_groups.data_of(data)
  config.algorithm.update(
    num_clusters=planted_groups.num_groups(data),
    canonical=('last_layer',) if data == 'cifar10' else ('all',),
    membership={
      'learning_rate': _MEMBERSHIP_RATES.get(
        f'{data}_{method}', _MEMBERSHIP_RATES.get(data, 0.3)
      ),
      'gradient_weight': 'none',
    },
    laplacian={'weight': 1e-5},
  )
  _treat(config.algorithm, method)
  return config


def _treat(algorithm: ml_collections.ConfigDict, method: str) -> None:
  """Sets the options of a method."""
  if method in ('ppfl2', 'probabilities'):
    algorithm.mixing = {'ppfl2': 'parameters'}.get(method, method)
  elif method == 'released':
    algorithm.schedule = 'shared_first'
    algorithm.weighting = 'uniform'
    algorithm.membership.batch_size = 128
    algorithm.laplacian.form = 'degree'
  elif method == 'random_block':
    algorithm.schedule = 'random_block'
