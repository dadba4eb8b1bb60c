"""Tests of decomposed networks: weights, counts, outputs, bad input."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import errors
from tff_algos.models.factors import decomposition
from tff_algos.models.vision import convolutions
from tff_algos.numerics import factored_weights, filters, trees

_SEED = (3, 4)
_X = np.random.default_rng(0).normal(size=(3, 16, 16, 2)).astype(np.float32)


def _build(num_atoms=0, name='small_cnn', shape=(16, 16, 2), **options):
  return toys.build(
    {'name': name, 'decomposition': {'num_atoms': num_atoms, **options}},
    shape,
    5,
  )


def test_weights_of_a_decomposed_network():
  """m k^2 + c c' m numbers in the place of c c' k^2."""
  spec = _build(9).weights_spec()
  assert {name: tuple(leaf.shape) for name, leaf in spec.items()} == {
    **{'conv_0/atoms': (5, 5, 9), 'conv_0/coefficients': (9, 2, 6)},
    **{'conv_0/bias': (6,), 'conv_1/atoms': (5, 5, 9)},
    **{'conv_1/coefficients': (9, 6, 16), 'conv_1/bias': (16,)},
    **{'dense_0/kernel': (16, 120), 'dense_0/bias': (120,)},
    **{'dense_1/kernel': (120, 5), 'dense_1/bias': (5,)},
  }
  assert list(spec)[:3] == [
    'conv_0/atoms',
    'conv_0/coefficients',
    'conv_0/bias',
  ]
  plain = trees.num_entries(_build().weights_spec())
  kernels, atoms = 25 * (2 * 6 + 6 * 16), 2 * 25 * 9
  coefficients = 9 * (2 * 6 + 6 * 16)
  expected = plain - kernels + atoms + coefficients
  assert trees.num_entries(spec) == expected


@pytest.fixture(params=[False, True])
def two_layers(request, monkeypatch):
  """Computes every decomposed convolution one way, and the other."""
  monkeypatch.setattr(
    convolutions, '_two_layers_are_faster', lambda *_: request.param
  )


@pytest.mark.usefixtures('two_layers')
@pytest.mark.parametrize('num_atoms', [1, 4])
def test_it_computes_what_the_network_with_built_kernels_does(num_atoms):
  model = _build(num_atoms)
  weights = model.initialize(_SEED)
  plain = factored_weights.build_kernels(weights)
  expected = _build().apply(plain, _X)
  np.testing.assert_allclose(
    model.apply(weights, _X), expected, rtol=1e-4, atol=1e-4
  )


@pytest.mark.parametrize('num_atoms', [9, 12])
def test_trained_3x3_kernels_are_converted_without_loss(num_atoms):
  """Eckart and Young: as many atoms as pixels lose nothing."""
  options = {'name': 'cifar_cnn', 'shape': (8, 8, 1)}
  plain = _build(**options)
  weights = plain.initialize(_SEED)
  factored = factored_weights.replace_kernels(
    weights,
    {
      layer: filters.factor_kernel(weights[f'{layer}/kernel'], num_atoms)
      for layer in factored_weights.plain_layers(weights)
    },
  )
  model = _build(num_atoms, **options)
  tf.nest.assert_same_structure(factored, model.weights_spec())
  x = _X[:, :8, :8, :1]
  np.testing.assert_allclose(
    model.apply(factored, x), plain.apply(weights, x), rtol=1e-3, atol=1e-5
  )


def test_starting_from_the_kernel_is_starting_like_the_ordinary_network():
  """25 atoms of 5 x 5 pixels lose nothing."""
  model = _build(25, atom_init='kernel')
  expected = _build().apply(_build().initialize(_SEED), _X)
  np.testing.assert_allclose(
    model.apply(model.initialize(_SEED), _X), expected, rtol=1e-3, atol=1e-4
  )


def test_kernels_that_are_trained_start_as_the_products_of_the_factors():
  """The ordinary network otherwise, whose kernels have He's variance."""
  model, factored = _build(9, trained='kernels'), _build(9)
  weights = model.initialize(_SEED)
  expected = factored_weights.build_kernels(factored.initialize(_SEED))
  assert list(weights) == list(_build().weights_spec())
  for name, leaf in expected.items():
    np.testing.assert_array_equal(weights[name], leaf)
  np.testing.assert_allclose(
    model.apply(weights, _X),
    factored.apply(factored.initialize(_SEED), _X),
    rtol=1e-3,
    atol=1e-4,
  )


def test_other_weights_start_like_those_of_the_ordinary_network():
  plain = _build().initialize(_SEED)
  weights = _build(4).initialize(_SEED)
  for name in plain.keys() & weights.keys():
    np.testing.assert_array_equal(weights[name], plain[name])
  layers = [weights[f'conv_{i}/atoms'] for i in (0, 1)]
  assert not np.isclose(*layers).any()


def test_no_atoms_is_the_ordinary_network():
  spec = _build(0).weights_spec()
  assert 'conv_0/kernel' in spec
  assert 'conv_0/atoms' not in spec


@pytest.mark.usefixtures('two_layers')
@pytest.mark.parametrize('num_atoms', [1, 4])
def test_bfloat16_computes_in_factors_too(num_atoms):
  exact = _build(num_atoms)
  weights = exact.initialize(_SEED)
  model = toys.build(
    {
      **{'name': 'small_cnn', 'compute_dtype': 'bfloat16'},
      'decomposition': {'num_atoms': num_atoms},
    },
    (16, 16, 2),
    5,
  )
  outputs, expected = model.apply(weights, _X), exact.apply(weights, _X)
  scale = np.abs(expected).max()
  assert np.abs(outputs - expected).max() < model.output_tolerance * scale


def test_a_network_without_filters_is_refused():
  mlp = toys.build({'name': 'mlp'}, (4,), 2)
  text = 'num_atoms is 3, but mlp has no convolution .* set it to 0'
  with pytest.raises(errors.ConfigError, match=text):
    decomposition.decompose(mlp, decomposition.DecompositionConfig(3))


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_atoms': -1}, 'num_atoms must be an integer >= 0, got -1'),
    ({'atom_init': 'zeros'}, "atom_init must be one of 'normal'"),
    ({'trained': 'atoms'}, "trained must be one of 'factors', 'kernels'"),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    decomposition.DecompositionConfig(**options)
