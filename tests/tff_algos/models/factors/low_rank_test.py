"""Tests of kernels of low rank: products, ranks, counts, starts, bad input."""

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.core import errors
from tff_algos.models import registry
from tff_algos.models.factors import low_rank
from tff_algos.numerics import trees

_SEED = (3, 4)
_SHAPE = (16, 16, 2)


def _build(layers='all_but_last', name='small_cnn', shape=_SHAPE, **options):
  return toys.build(
    {'name': name, 'low_rank': {'layers': layers, **options}}, shape, 5
  )


def _mlp():
  return toys.build({'name': 'mlp', 'hidden_sizes': (20,)}, (16,), 5)


def _kernel(weights, layer):
  """W = (X1 C1 Y1^T) * (X2 C2 Y2^T), with sums written out by NumPy."""
  sides = []
  for side in (1, 2):
    x, y = (weights[f'{layer}/{part}_{side}'].numpy() for part in 'xy')
    core = weights.get(f'{layer}/core_{side}')
    if core is None:
      sides.append(np.einsum('ir,or->io', x, y))
    else:
      sides.append(np.einsum('hwrs,ir,os->hwio', core.numpy(), x, y))
  return sides[0] * sides[1]


def test_it_computes_what_the_network_with_built_kernels_does():
  model, plain = _build(), _build('none')
  weights = model.initialize(_SEED)
  built = {
    name: leaf if name in weights else _kernel(weights, name.split('/')[0])
    for name, leaf in plain.initialize(_SEED).items()
  }
  built |= {name: weights[name] for name in built if name in weights}
  changed = [name for name in built if name not in weights]
  assert changed == ['conv_0/kernel', 'conv_1/kernel', 'dense_0/kernel']
  x = np.random.default_rng(0).normal(size=(3, *_SHAPE)).astype(np.float32)
  np.testing.assert_allclose(
    model.apply(weights, x), plain.apply(built, x), rtol=1e-4, atol=1e-5
  )


@pytest.mark.parametrize(
  ('shape', 'rank_share', 'rank'),
  [
    # 16 = 4^2; 2 * 10 * (16 + 80) = 1,920 > 1,280 >= 2 * 6 * 96.
    ((16, 80), 0.0, 4),
    ((16, 80), 1.0, 6),
    ((16, 80), 0.5, 5),
    # 2 R (128 + 25 R) <= 102,400 up to R = 42.
    ((5, 5, 64, 64), 0.0, 8),
    ((5, 5, 64, 64), 1.0, 42),
    ((5, 5, 64, 64), 0.1, 11),
    # The smallest rank has 2 * 2 * (3 + 3) numbers.
    ((3, 3), 0.5, None),
  ],
)
def test_ranks(shape, rank_share, rank):
  assert low_rank.rank_of(shape, rank_share) == rank


def test_numbers_of_a_lenet():
  """Both convolutions with R = 2 and 8 of 3 to 64 and 64 to 64 channels."""
  options = {'name': 'lenet', 'shape': (32, 32, 3), 'rank_share': 0.0}
  plain, made = (
    trees.num_entries(_build(layers, **options).weights_spec())
    for layers in ('none', 'convolutions')
  )
  first, second = 2 * 2 * (67 + 2 * 25), 2 * 8 * (128 + 8 * 25)
  assert plain - made == 25 * (3 + 64) * 64 - first - second


def test_products_of_small_rank_can_have_full_rank():
  config = low_rank.LowRankConfig('all_but_last', 0.0)
  weights = low_rank.parametrize(_mlp(), config).initialize(_SEED)
  assert weights['dense_0/x_1'].shape == (16, 4)
  assert np.linalg.matrix_rank(_kernel(weights, 'dense_0')) == 16


def test_the_last_layer_stays_though_a_product_would_be_smaller():
  mlp = toys.build({'name': 'mlp', 'hidden_sizes': (40,)}, (16,), 16)
  assert low_rank.rank_of((40, 16), 0.0)
  config = low_rank.LowRankConfig('all_but_last', 0.0)
  weights = low_rank.parametrize(mlp, config).initialize(_SEED)
  assert [name for name in weights if name.endswith('/kernel')] == [
    'dense_1/kernel'
  ]


def test_kernels_start_with_hes_variance():
  model = _build(name='lenet', shape=(32, 32, 3), rank_share=1.0)
  weights = model.initialize(_SEED)
  for layer, fan_in in (('conv_1', 25 * 64), ('dense_0', 1600)):
    variance = _kernel(weights, layer).var()
    np.testing.assert_allclose(variance, 2 / fan_in, rtol=0.25)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'layers': 'dense'}, "layers must be one of 'none', 'convolutions'"),
    ({'rank_share': 1.5}, 'rank_share must be'),
  ],
)
def test_bad_options_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(**options)


def test_a_network_without_such_kernels_is_refused():
  config = low_rank.LowRankConfig('convolutions')
  with pytest.raises(errors.ConfigError, match='mlp has no such kernel'):
    low_rank.parametrize(_mlp(), config)


def test_kernels_are_either_decomposed_or_of_low_rank():
  section = {
    **{'name': 'small_cnn', 'decomposition': {'num_atoms': 9}},
    'low_rank': {'layers': 'convolutions'},
  }
  with pytest.raises(errors.ConfigError, match='num_atoms is 9, but low_rank'):
    registry.parse_config(section)
