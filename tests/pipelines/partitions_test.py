import hypothesis
import numpy as np
import pytest
import scipy.stats
from hypothesis import strategies
from hypothesis.extra import numpy as numpy_strategies

from pipelines import options, partitions
from tff_algos.core import errors


def _mixtures(law, num_clients, num_sources, seed=0):
  return partitions.build_mixtures(
    options.PartitionConfig(law=law, num_clients=num_clients),
    num_clients,
    num_sources,
    np.random.default_rng(seed),
  )


@pytest.mark.parametrize(('law', 'share'), [('10:90', 0.1), ('30:70', 0.3)])
def test_two_kinds_of_clients(law, share):
  mixtures = _mixtures(law, 100, 2)
  np.testing.assert_allclose(mixtures[:50], [[share, 1 - share]] * 50)
  np.testing.assert_allclose(mixtures[50:], [[1 - share, share]] * 50)


@pytest.mark.parametrize('num_clients', [1, 7, 24, 100])
def test_linear_shares_climb(num_clients):
  mixtures = _mixtures('linear', num_clients, 2)
  expected = (np.arange(num_clients) + 0.5) / num_clients
  np.testing.assert_allclose(mixtures[:, 0], expected)
  np.testing.assert_allclose(mixtures.sum(axis=0), num_clients / 2)


def test_iid_shares_are_equal():
  np.testing.assert_allclose(_mixtures('iid', 3, 4), np.full((3, 4), 0.25))


@pytest.mark.parametrize('num_sources', [1, 2, 3, 8])
def test_random_shares_lie_on_the_simplex(num_sources):
  """Means of 20,000 clients within 5 standard errors: false alarms < 1e-5."""
  mixtures = _mixtures('random', 20_000, num_sources)
  assert mixtures.shape == (20_000, num_sources)
  assert np.all(mixtures >= 0)
  np.testing.assert_allclose(mixtures.sum(axis=1), 1)
  standard_error = mixtures.std(axis=0).max() / np.sqrt(20_000)
  np.testing.assert_allclose(
    mixtures.mean(axis=0), 1 / num_sources, atol=5 * standard_error + 1e-12
  )


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('num_sources', [2, 4])
def test_random_shares_follow_their_law(num_sources, seed):
  """Kolmogorov-Smirnov: each share is Beta(1, S - 1), uniform for S = 2.

  Level 0.0001 in 3 + 3 runs of one test a source: with fresh seeds a false
  alarm in fewer than 1 of 500 runs; the seeds are fixed.
  """
  mixtures = _mixtures('random', 5000, num_sources, seed)
  law = scipy.stats.beta(1, num_sources - 1)
  for shares in mixtures.T:
    assert scipy.stats.kstest(shares, law.cdf).pvalue > 0.0001


@pytest.mark.parametrize('law', ['10:90', 'linear'])
@pytest.mark.parametrize('num_sources', [1, 3])
def test_laws_for_two_distributions_refuse_others(law, num_sources):
  with pytest.raises(errors.ConfigError, match='exactly 2 .* use .random.'):
    _mixtures(law, 4, num_sources)


def test_sizes_are_uniform_on_both_ends_included():
  """Mean of 100,000 draws from 100..200 within 5 standard errors (0.46)."""
  sizes = partitions.draw_sizes(
    options.SizesConfig('uniform', 100, 200), 100_000, np.random.default_rng(0)
  )
  assert sizes.min() == 100
  assert sizes.max() == 200
  assert abs(sizes.mean() - 150) < 0.46
  assert np.bincount(sizes)[100:].min() > 850  # 990 expected, 4.5 deviations


def test_split_sizes_come_on_top():
  sizes = partitions.split_sizes(
    np.array([10, 15, 0]),
    options.SplitsConfig(validation_ratio=0.1, test_ratio=0.25),
  )
  np.testing.assert_array_equal(sizes, [[10, 15, 0], [1, 2, 0], [3, 4, 0]])


@pytest.mark.parametrize(
  ('mixture', 'size', 'expected'),
  [
    ([0.1, 0.9], 10, [1, 9]),
    ([0.1, 0.9], 14, [1, 13]),
    ([0.1, 0.9], 15, [2, 13]),  # remainders 0.5 and 0.5: the lower index
    ([0.1, 0.9], 16, [2, 14]),
    ([0.29, 0.71], 100, [29, 71]),
    ([1 / 3, 1 / 3, 1 / 3], 10, [4, 3, 3]),
    ([0.5, 0.25, 0.25], 0, [0, 0, 0]),
    ([1.0, 0.0], 7, [7, 0]),
  ],
)
def test_largest_remainder(mixture, size, expected):
  counts = partitions.largest_remainder(np.array([mixture]), np.array([size]))
  np.testing.assert_array_equal(counts, [expected])


@hypothesis.given(
  numpy_strategies.arrays(
    float,
    numpy_strategies.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=strategies.floats(0, 1),
  ),
  strategies.integers(0, 10_000),
)
def test_largest_remainder_is_near_and_adds_up(raw, size):
  raw = raw + (raw.sum(axis=1, keepdims=True) == 0)
  mixtures = raw / raw.sum(axis=1, keepdims=True)
  sizes = np.full(len(raw), size)
  counts = partitions.largest_remainder(mixtures, sizes)
  np.testing.assert_array_equal(counts.sum(axis=1), sizes)
  assert np.all(counts >= 0)
  assert np.all(np.abs(counts - mixtures * size) < 1 + 1e-6)


@hypothesis.given(strategies.integers(1, 30), strategies.integers(0, 10_000))
def test_linear_partition_halves_the_examples(num_clients, seed):
  """FedSoft's linear partition: half of all examples from each, +- rounding."""
  sizes = np.full(num_clients, 1 + seed % 50)
  counts = partitions.largest_remainder(
    _mixtures('linear', num_clients, 2), sizes
  )
  assert abs(counts[:, 0].sum() - sizes.sum() / 2) <= num_clients / 2 + 0.5


def test_largest_equal_size_cannot_be_raised():
  mixtures = _mixtures('10:90', 4, 2)
  config = options.SplitsConfig(validation_ratio=0.5)
  available = np.array([[100, 90], [50, 40], [0, 0]])
  size = partitions.largest_equal_size(mixtures, available, config)
  # 4 clients * 40 validation examples of the second distribution allow 40.
  assert size == 40
  wanted = [
    partitions.count_quotas(mixtures, np.full(4, n), config).sum(axis=1)
    for n in (size, size + 1)
  ]
  assert np.all(wanted[0] <= available)
  assert not np.all(wanted[1] <= available)


def test_largest_equal_size_of_nothing():
  mixtures = _mixtures('10:90', 4, 2)
  size = partitions.largest_equal_size(
    mixtures, np.zeros((3, 2), int), options.SplitsConfig()
  )
  assert size == 0


def test_too_few_examples_are_named():
  wanted = np.array([[10, 20], [1, 2]])
  available = np.array([[10, 15], [5, 5]])
  with pytest.raises(
    errors.PartitionError,
    match=r"wants 20 train examples .*'rotated' and only 15 exist. Lower",
  ):
    partitions.check_available(
      wanted, available, ('upright', 'rotated'), ('train', 'validation')
    )


def test_groups_draw_different_randomness():
  draws = {
    partitions.partition_generator(0, group, what).random()
    for group in ('participating', 'unseen')
    for what in ('mixtures', 'sizes')
  }
  assert len(draws) == 4
