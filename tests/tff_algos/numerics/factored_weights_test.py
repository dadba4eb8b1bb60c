"""Tests of networks' weights with kernels and with factors."""

from collections import OrderedDict

import numpy as np

from tff_algos.numerics import factored_weights


def _random(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


_PLAIN = OrderedDict(
  {
    'conv_0/kernel': _random(3, 3, 2, 4),
    'conv_0/bias': _random(4, seed=1),
    'shortcut/kernel': _random(1, 1, 2, 4, seed=2),
    'dense/kernel': _random(8, 3, seed=3),
  }
)


def test_only_filters_of_several_pixels_are_factored_in_their_place():
  assert factored_weights.plain_layers(_PLAIN) == ['conv_0']
  weights, relative_errors = factored_weights.factor_kernels(_PLAIN, 9)
  assert list(weights) == [
    *('conv_0/atoms', 'conv_0/coefficients', 'conv_0/bias'),
    *('shortcut/kernel', 'dense/kernel'),
  ]
  assert factored_weights.factored_layers(weights) == ['conv_0']
  assert factored_weights.plain_layers(weights) == []
  assert list(relative_errors) == ['conv_0']
  assert relative_errors['conv_0'] < 1e-5


def test_factors_are_built_back_into_kernels():
  weights, _ = factored_weights.factor_kernels(_PLAIN, 9)
  plain = factored_weights.build_kernels(weights)
  assert list(plain) == list(_PLAIN)
  for name, leaf in plain.items():
    np.testing.assert_allclose(leaf, _PLAIN[name], rtol=1e-5, atol=1e-5)


def test_too_few_atoms_lose_something_and_say_how_much():
  weights, relative_errors = factored_weights.factor_kernels(_PLAIN, 2)
  factors = factored_weights.take_factors(weights, 'conv_0')
  rebuilt = np.einsum('uvq,qio->uvio', *factors)
  kernel = _PLAIN['conv_0/kernel']
  expected = np.linalg.norm(rebuilt - kernel) / np.linalg.norm(kernel)
  assert expected > 0.1
  np.testing.assert_allclose(relative_errors['conv_0'], expected, rtol=1e-4)
