import numpy as np
import pytest
import scipy.stats

from pipelines.sources import base, registry
from tff_algos.core import errors


def _source(seed=0, **options):
  return registry.create('logistic_mixture', options, seed)


def test_sizes_and_shares():
  """PPFL: sizes in [50, 1000]; counts fit alpha_i.

  The chi-squares of 300 clients add up to one of some 600; components that
  expect fewer than 5 are left out. Fails by chance once in 500,000.
  """
  source = _source()
  clients = [source.client(i) for i in range(300)]
  sizes = np.array([client.counts.sum() for client in clients])
  assert sizes.min() >= 50
  assert sizes.max() == 1000  # P(n_i = 1000) is 0.07, so some of 300 are.
  total, freedom = 0.0, 0
  for client in clients:
    np.testing.assert_allclose(client.mixture.sum(), 1)
    expected = client.mixture * client.counts.sum()
    if expected.min() >= 5:
      total += np.sum((client.counts - expected) ** 2 / expected)
      freedom += 2
  assert freedom > 100
  low, high = scipy.stats.chi2(freedom).ppf([1e-6, 1 - 1e-6])
  assert low < total < high


def test_mixtures_are_dirichlet():
  """alpha_i1 ~ Beta(0.4, 0.8); Kolmogorov-Smirnov, once in a million."""
  source = _source(num_clients=3000)
  first = [source.client(i).mixture[0] for i in range(3000)]
  assert scipy.stats.kstest(first, scipy.stats.beta(0.4, 0.8).cdf).pvalue > 1e-6


def test_uniform_features_and_thetas():
  """Kolmogorov-Smirnov of 15,000 and 450 draws, once in 500,000 for both."""
  source = _source()
  uniform = scipy.stats.uniform(-1, 2).cdf
  x = [e.x for e in source.read(base.Block('all', 0, 100))]
  assert scipy.stats.kstest(np.concatenate(x), uniform).pvalue > 1e-6
  assert source.thetas().shape == (3, 150)
  assert scipy.stats.kstest(source.thetas().ravel(), uniform).pvalue > 1e-6


def test_labels_are_of_the_component():
  """round(sigmoid(z)) without noise; with it, only points near 0 differ."""
  for noise in (0.0, 0.1):
    source = _source(noise=noise)
    thetas = source.thetas()
    wrong = 0
    for example in source.read(base.Block('all', 0, 1000)):
      z = example.x.astype(float) @ thetas[example.native_source]
      expected = np.round(1 / (1 + np.exp(-z)))
      wrong += example.y != expected
      # Six deviations of the noise: once in a million of 1,000 points.
      assert example.y == expected or abs(z) < 6 * noise
    assert (wrong > 0) == (noise > 0)


def test_examples_follow_the_counts():
  source = _source(num_clients=5)
  seen = {}
  for block in source.blocks():
    for e in source.read(block):
      seen.setdefault(e.client, []).append(e.native_source)
  assert sorted(seen) == [f'client_{i:05d}' for i in range(5)]
  for i in range(5):
    counts = np.bincount(seen[f'client_{i:05d}'], minlength=3)
    np.testing.assert_array_equal(counts, source.client(i).counts)
  mixtures = source.facts()['mixtures']
  np.testing.assert_array_equal(
    mixtures['client_00003'], source.client(3).mixture
  )


def test_tests_are_drawn_in_addition_by_the_same_mixture():
  """PPFL's code; shares within 6 deviations: once in 100 million."""
  source = _source(num_clients=4, num_test_examples=500)
  assert source.has_test_split() and not _source().has_test_split()
  examples = [e for b in source.blocks() for e in source.read(b)]
  train = [e for e in examples if not e.is_test]
  without = _source(num_clients=4)
  again = [e for b in without.blocks() for e in without.read(b)]
  assert len(train) == len(again)
  for e, other in zip(train, again, strict=True):
    np.testing.assert_array_equal(e.x, other.x)
    assert (e.y, e.client) == (other.y, other.client)
  assert len({e.x.tobytes() for e in examples}) == len(examples)
  for i in range(4):
    mixture = source.client(i).mixture
    components = [
      e.native_source
      for e in examples
      if e.is_test and e.client == f'client_{i:05d}'
    ]
    counts = np.bincount(components, minlength=3)
    assert counts.sum() == 500
    deviations = np.sqrt(500 * mixture * (1 - mixture))
    assert (np.abs(counts - 500 * mixture) <= 6 * deviations + 1).all()


def test_points_do_not_depend_on_the_block_but_on_the_seed():
  source = _source()
  whole = list(source.read(base.Block('all', 0, 5)))
  part = list(source.read(base.Block('all', 3, 5)))
  np.testing.assert_array_equal(whole[3].x, part[0].x)
  other = next(_source(1).read(base.Block('all', 0, 1)))
  assert np.any(other.x != whole[0].x)


@pytest.mark.parametrize(
  'options',
  [
    {'num_clients': 0},
    {'num_components': 0},
    {'num_features': 0},
    {'concentration': 0.0},
    {'noise': -0.1},
    {'min_examples': 0},
    {'num_test_examples': -1},
    {'max_examples': 49},
  ],
)
def test_bad_options(options):
  with pytest.raises(errors.ConfigError, match=next(iter(options))):
    _source(**options)
