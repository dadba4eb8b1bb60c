"""Tests of networks' weights with kernels and with factors."""

from collections import OrderedDict

import numpy as np

from tests.testing import draws
from tff_algos.numerics import factored_weights, filters

_PLAIN = OrderedDict(
  {
    'conv_0/kernel': draws.normal(3, 3, 2, 4),
    'conv_0/bias': draws.normal(4, seed=1),
    'shortcut/kernel': draws.normal(1, 1, 2, 4, seed=2),
    'dense/kernel': draws.normal(8, 3, seed=3),
  }
)


def _factored(num_atoms):
  """Returns the weights with the nearest factors of their kernel."""
  factors = filters.factor_kernel(_PLAIN['conv_0/kernel'], num_atoms)
  return factored_weights.replace_kernels(_PLAIN, {'conv_0': factors})


def test_only_filters_of_several_pixels_are_factored_in_their_place():
  assert factored_weights.plain_layers(_PLAIN) == ['conv_0']
  weights = _factored(9)
  assert list(weights) == [
    *('conv_0/atoms', 'conv_0/coefficients', 'conv_0/bias'),
    *('shortcut/kernel', 'dense/kernel'),
  ]
  assert factored_weights.factored_layers(weights) == ['conv_0']
  assert factored_weights.plain_layers(weights) == []


def test_factors_are_built_back_into_kernels():
  plain = factored_weights.build_kernels(_factored(9))
  assert list(plain) == list(_PLAIN)
  for name, leaf in plain.items():
    np.testing.assert_allclose(leaf, _PLAIN[name], rtol=1e-5, atol=1e-5)
