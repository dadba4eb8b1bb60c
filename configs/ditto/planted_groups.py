r"""Ditto on PPFL's clients in planted groups.

  python -m binaries.run --config=configs/ditto/planted_groups.py:mnist \
    --workdir=runs/ditto_mnist_groups --config.dataset.source.options.folder=DIR

Clients, networks and deviations from the paper: configs/planted_groups.py. The paper
(arXiv 2310.14337) has no results of Ditto on these clients; the weight of the proximal
term is that of the authors' release on EMNIST. Results: docs/reproduction/ppfl.md.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import planted_groups


def get_config(variant: str = 'mnist') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `planted_groups.VARIANTS`."""
  config = planted_groups.get_config('ditto', variant)
  config.name = f'Ditto on clients in planted groups, {variant}'
  config.algorithm.update(cohort_size=0, proximal_weight=0.1)
  return config
