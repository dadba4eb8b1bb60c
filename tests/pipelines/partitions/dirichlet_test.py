import hypothesis
import numpy as np
import pytest
import scipy.stats
from hypothesis import strategies

from pipelines.partitions import apportion, dirichlet, division
from tff_algos.core import errors


def _divide(counts, num_clients, concentration, seed=0, min_examples=1):
  return dirichlet.divide(
    dirichlet.Options(concentration, min_examples),
    division.Request(np.asarray(counts), num_clients, 0, seed),
  )


@hypothesis.given(
  counts=strategies.lists(strategies.integers(0, 300), min_size=1, max_size=8),
  num_clients=strategies.integers(1, 20),
  concentration=strategies.floats(0.05, 100),
  seed=strategies.integers(0, 100),
)
def test_every_example_is_used(counts, num_clients, concentration, seed):
  counts = np.array(counts)
  divided = _divide(counts, num_clients, concentration, seed, 0)
  np.testing.assert_allclose(divided.shares.sum(axis=0), 1)
  quotas = apportion.apportion(divided.shares, counts)
  np.testing.assert_array_equal(quotas.sum(axis=0), counts)


@pytest.mark.parametrize(
  ('concentration', 'num_draws'), [(0.1, 7), (0.3, 1), (0.6, 1)]
)
def test_cifar_over_100_clients(concentration, num_draws):
  """The concentrations and the size of the filter-decomposition paper."""
  counts = np.full(10, 5000)
  divided = _divide(counts, 100, concentration, min_examples=10)
  quotas = apportion.apportion(divided.shares, counts)
  assert quotas.sum() == 50_000
  assert quotas.sum(axis=1).min() >= 10
  assert divided.facts == {'num_draws': num_draws}


@pytest.mark.parametrize('concentration', [0.1, 1.0])
def test_shares_follow_their_law(concentration):
  """Each share is Beta(a, (M - 1) a); level 0.0001, fixed seeds."""
  shares = np.concatenate(
    [_divide(np.full(50, 1), 5, concentration, s, 0).shares for s in range(20)],
    axis=1,
  )
  law = scipy.stats.beta(concentration, 4 * concentration)
  assert scipy.stats.kstest(shares[0], law.cdf).pvalue > 0.0001


def test_seeds():
  one, same, other = (_divide([50] * 4, 5, 1.0, s).shares for s in (0, 0, 1))
  np.testing.assert_array_equal(one, same)
  assert np.any(one != other)


def test_drawing_ends():
  with pytest.raises(
    errors.PartitionError, match=r'100 draws .* 0\.1 .* 10 clients .* at best'
  ):
    _divide([50] * 10, 10, 0.1, min_examples=50)
  with pytest.raises(errors.PartitionError, match='only 500 training'):
    _divide([50] * 10, 10, 0.1, min_examples=51)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    *(({'concentration': a}, 'from 1e-6 to 1e6') for a in (0.0, 9e-7, 2e6)),
    ({'concentration': 1.0, 'min_examples': -1}, 'min_examples'),
  ],
)
def test_bad_options(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    dirichlet.Options(**options)
