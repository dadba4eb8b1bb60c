r"""Controls of filter decomposition: equal starts, and the mean of the kernels.

  python -m binaries.sweep --config=configs/filter_decomposition/controls.py:cifar10_5 \
    --also=:cifar10_5_plain,:cifar10_5_equal_start,:cifar10_5_kernels,:cifar10_5_full,\
:cifar10_5_full_kernels,:cifar10_5_balanced \
    --config.dataset.source.options.folder=DIR --fixed_dataset --num_seeds=3 \
    --workdir=runs/controls

tells causes of a gain over the plain network apart: the start, the parametrization by
factors, the product of mean factors, which the paper takes for that of more clients,
and factoring anew in every round, which balances the factors. A variant names the data
and a control:

  (none)        nine atoms, product of the mean factors
  kernels       nine atoms, mean of the kernels, which has no latent clients
                and is factored anew in every round
  balanced      nine atoms, product of the mean factors, factored anew likewise
  equal_start   kernels that start as the products of nine atoms: He's variance
  plain         kernels of Glorot's variance, as the networks have without factors
  full          atoms as many as pixels, started as `plain`; product of means
  full_kernels  the same, mean of the kernels
  full_balanced the same, product of the mean factors, factored anew

`full` starts as the function that `plain` is, and the variant without a name as that
of `equal_start`. Data: `cifar10_5`, `fashion_mnist_small` and `cifar10_small` of
configs/few_classes.py. Results: docs/reproduction/filter_decomposition.md.

The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import base
from configs.filter_decomposition import global_models

_DATA = ('cifar10_5', 'cifar10_small', 'fashion_mnist_small', 'smoke')
_METHODS = (
  *('decomposed', 'kernels', 'balanced', 'equal_start'),
  *('plain', 'full', 'full_kernels', 'full_balanced'),
)


def get_config(variant: str = 'cifar10_5') -> ml_collections.ConfigDict:
  """Returns the config of one variant of the data and a control."""
  data, method = base.part(variant, _DATA, _METHODS)
  config = global_models.get_config(data)
  config.name = f'Controls of filter decomposition, {variant}'
  if method == 'plain':
    config.model.decomposition.num_atoms = 0
  elif method == 'equal_start':
    config.model.decomposition.trained = 'kernels'
  elif method.startswith('full'):
    # The largest filters have 5 x 5 pixels.
    config.model.decomposition.update(num_atoms=25, atom_init='kernel')
  if method.endswith('kernels'):
    config.algorithm.averaging = 'kernels'
  elif method.endswith('balanced'):
    config.algorithm.averaging = 'balanced_factors'
  return config
