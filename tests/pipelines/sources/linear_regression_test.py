import numpy as np
import pytest
import scipy.stats

from pipelines.sources import base, registry
from tff_algos.core import errors


def _source(seed=0, **options):
  return registry.create('linear_regression', options, seed)


def _read(source, part):
  blocks = [block for block in source.blocks() if block.part == part]
  examples = [e for block in blocks for e in source.read(block)]
  return (
    np.stack([e.x for e in examples]).astype(float),
    np.array([e.y for e in examples]),
    examples,
  )


def test_blocks_of_native_distributions():
  size = base.BLOCK_SIZE
  source = _source(num_examples_per_source=size + 1, num_held_out_per_source=3)
  assert source.blocks() == [
    ('train_0', 0, size),
    ('train_0', size, size + 1),
    ('train_1', 0, size),
    ('train_1', size, size + 1),
    ('test_0', 0, 3),
    ('test_1', 0, 3),
  ]


@pytest.mark.parametrize(
  ('reading', 'variance'), [('variance', 10), ('standard_deviation', 100)]
)
def test_both_readings_of_sigma_0(reading, variance):
  """2,000 entries: sums of squares within the 1e-6 quantiles of chi-square."""
  source = _source(num_sources=200, theta_spread=10.0, theta_spread_is=reading)
  total = np.sum(source.thetas() ** 2) / variance
  low, high = scipy.stats.chi2(2000).ppf([1e-6, 1 - 1e-6])
  assert low < total < high


def test_error_at_theta_is_the_noise():
  """FedSoft: 1.0 +- 0.05 (5 deviations would be 0.07)."""
  source = _source(num_held_out_per_source=10_000)
  for s in range(2):
    x, y, examples = _read(source, f'test_{s}')
    error = np.mean((x @ source.thetas()[s] - y) ** 2)
    assert abs(error - 1) < 0.05
    assert {e.native_source for e in examples} == {s}
    assert all(e.is_test for e in examples)


def test_no_intercept_and_standard_normal_features():
  """Least squares finds theta and no intercept; 5 deviations of 10,000."""
  source = _source(num_examples_per_source=10_000)
  x, y, _ = _read(source, 'train_1')
  design = np.column_stack([x, np.ones(len(x))])
  found = np.linalg.lstsq(design, y, rcond=None)[0]
  np.testing.assert_allclose(
    found, [*source.thetas()[1], 0], atol=5 / np.sqrt(10_000)
  )
  np.testing.assert_allclose(x.mean(axis=0), 0, atol=0.05)
  np.testing.assert_allclose(x.var(axis=0), 1, atol=0.08)


def test_planted_thetas_are_taken_as_they_are():
  planted = ((1.0, 2.0, 3.0), (-1.0, 0.5, 0.0), (0.0, 0.0, 4.0))
  source = _source(num_sources=3, num_features=3, planted_thetas=planted)
  np.testing.assert_array_equal(source.thetas(), planted)
  assert source.facts() == {'thetas': [list(theta) for theta in planted]}


@pytest.mark.parametrize(
  ('planted', 'options', 'text'),
  [
    (((1.0, 2.0),), {}, 'num_sources=2 rows'),
    (((1.0, 2.0), (3.0,)), {}, r'\[2, 1\] numbers'),
    (((1.0, 2.0), (3.0, 4.0)), {'separation': 5.0}, 'separation'),
  ],
)
def test_planted_thetas_that_do_not_fit(planted, options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _source(num_features=2, planted_thetas=planted, **options)


def test_separation_is_exact():
  thetas = _source(separation=165.0).thetas()
  np.testing.assert_allclose(np.sum((thetas[0] - thetas[1]) ** 2), 165.0)


def test_theta_seed_fixes_the_thetas_alone():
  first, second = (_source(seed, theta_seed=7) for seed in (0, 1))
  np.testing.assert_array_equal(first.thetas(), second.thetas())
  assert np.any(_source(0).thetas() != _source(1).thetas())
  block = base.Block('train_0', 0, 1)
  assert np.any(next(first.read(block)).x != next(second.read(block)).x)


def test_points_do_not_depend_on_the_block():
  source = _source()
  whole = list(source.read(base.Block('train_1', 0, 5)))
  part = list(source.read(base.Block('train_1', 3, 5)))
  np.testing.assert_array_equal(whole[3].x, part[0].x)
  assert whole[4].y == part[1].y


def test_more_points_keep_the_first_ones():
  few, many = (_source(num_examples_per_source=n) for n in (3, 6))
  np.testing.assert_array_equal(
    _read(few, 'train_0')[1], _read(many, 'train_0')[1][:3]
  )


def test_distributions_and_facts():
  source = _source(num_sources=3)
  assert source.native_source_names() == ('theta_0', 'theta_1', 'theta_2')
  assert np.array(source.facts()['thetas']).shape == (3, 10)
  assert source.checksums() != _source(1, num_sources=3).checksums()


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_sources': 0}, 'num_sources'),
    ({'num_features': 0}, 'num_features'),
    ({'theta_spread': 0.0}, 'theta_spread'),
    ({'theta_spread_is': 'sigma'}, "'variance', 'standard_deviation'"),
    ({'num_examples_per_source': 0}, 'num_examples_per_source'),
    ({'num_held_out_per_source': 0}, 'num_held_out_per_source'),
    ({'separation': -1.0}, 'separation'),
    ({'separation': 165.0, 'num_sources': 3}, 'needs num_sources=2'),
    ({'theta_seed': -1}, 'theta_seed'),
  ],
)
def test_bad_options(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _source(**options)
