import hypothesis
import numpy as np
import pytest
import scipy.stats
from hypothesis import strategies

from pipelines.partitions import apportion, mixtures
from tff_algos.core import errors


def _mixtures(law, num_clients, num_sources, seed=0):
  return mixtures.build_mixtures(
    law, num_clients, num_sources, np.random.default_rng(seed)
  )


@pytest.mark.parametrize(('law', 'share'), [('10:90', 0.1), ('30:70', 0.3)])
def test_two_kinds_of_clients(law, share):
  built = _mixtures(law, 100, 2)
  np.testing.assert_allclose(built[:50], [[share, 1 - share]] * 50)
  np.testing.assert_allclose(built[50:], [[1 - share, share]] * 50)


@pytest.mark.parametrize('law', ['10:90', '30:70'])
def test_counts_of_two_kinds_are_within_one_of_the_target(law):
  """FedSoft's sizes: 100 clients of 100 to 200 examples each."""
  sizes = np.random.default_rng(0).integers(100, 201, 100)
  built = _mixtures(law, 100, 2)
  counts = apportion.largest_remainder(built, sizes)
  minority = np.minimum(counts[:, 0], counts[:, 1])
  expected = int(law[:2]) / 100 * sizes
  assert np.all(np.abs(minority - expected) < 1)
  np.testing.assert_array_equal(counts.sum(axis=1), sizes)


@hypothesis.given(
  percents=strategies.lists(strategies.integers(0, 100), min_size=2, max_size=5)
  .filter(any)
  .map(lambda raw: [100 * share // sum(raw) for share in raw]),
  num_clients=strategies.integers(1, 40),
)
def test_shares_move_on_from_block_to_block(percents, num_clients):
  percents[0] += 100 - sum(percents)
  num_sources = len(percents)
  built = _mixtures(':'.join(map(str, percents)), num_clients, num_sources)
  blocks = np.bincount(
    mixtures.block_of(num_clients, num_sources), minlength=num_sources
  )
  assert blocks.max() - blocks.min() <= 1
  expected = [
    [percents[(s - block) % num_sources] / 100 for s in range(num_sources)]
    for block, count in enumerate(blocks)
    for _ in range(count)
  ]
  np.testing.assert_allclose(built, expected, atol=1e-12)
  assert np.all(built >= 0)


def test_pure_clusters():
  built = _mixtures('100:0:0', 5, 3)
  np.testing.assert_array_equal(built.argmax(axis=1), [0, 0, 1, 1, 2])
  np.testing.assert_array_equal(built.max(axis=1), 1)


@pytest.mark.parametrize('num_clients', [1, 7, 24, 100])
def test_linear_shares_climb(num_clients):
  built = _mixtures('linear', num_clients, 2)
  expected = (np.arange(num_clients) + 0.5) / num_clients
  np.testing.assert_allclose(built[:, 0], expected)
  np.testing.assert_allclose(built.sum(axis=0), num_clients / 2)


@hypothesis.given(strategies.integers(1, 30), strategies.integers(0, 10_000))
def test_linear_partition_halves_the_examples(num_clients, seed):
  """Half of all examples from each distribution, up to rounding."""
  sizes = np.full(num_clients, 1 + seed % 50)
  counts = apportion.largest_remainder(
    _mixtures('linear', num_clients, 2), sizes
  )
  assert abs(counts[:, 0].sum() - sizes.sum() / 2) <= num_clients / 2 + 0.5


def test_iid_shares_are_equal():
  np.testing.assert_allclose(_mixtures('iid', 3, 4), np.full((3, 4), 0.25))


@pytest.mark.parametrize('num_sources', [1, 2, 3, 8])
def test_random_shares_lie_on_the_simplex(num_sources):
  """Means of 20,000 clients within 5 standard errors: false alarms < 1e-5."""
  built = _mixtures('random', 20_000, num_sources)
  assert built.shape == (20_000, num_sources)
  assert np.all(built >= 0)
  np.testing.assert_allclose(built.sum(axis=1), 1)
  standard_error = built.std(axis=0).max() / np.sqrt(20_000)
  np.testing.assert_allclose(
    built.mean(axis=0), 1 / num_sources, atol=5 * standard_error + 1e-12
  )


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('num_sources', [2, 4])
def test_random_shares_follow_their_law(num_sources, seed):
  """Kolmogorov-Smirnov: each share is Beta(1, S - 1), uniform for S = 2.

  Level 0.0001 in 3 + 3 runs of one test a source: with fresh seeds a false
  alarm in fewer than 1 of 500 runs; the seeds are fixed.
  """
  built = _mixtures('random', 5000, num_sources, seed)
  law = scipy.stats.beta(1, num_sources - 1)
  for shares in built.T:
    assert scipy.stats.kstest(shares, law.cdf).pvalue > 0.0001


@pytest.mark.parametrize('law', ['10:90', 'linear'])
@pytest.mark.parametrize('num_sources', [1, 3])
def test_laws_for_two_distributions_refuse_others(law, num_sources):
  with pytest.raises(errors.ConfigError, match='exactly 2 .* use .random.'):
    mixtures.check_num_sources(law, num_sources)


@pytest.mark.parametrize(
  ('law', 'shares'),
  [
    ('30:70', (0.3, 0.7)),
    ('50:25:25', (0.5, 0.25, 0.25)),
    ('10:80', None),
    ('100', None),
    ('-10:110', None),
    ('random', None),
  ],
)
def test_shares_of_a_law(law, shares):
  assert mixtures.parse_shares(law) == shares


def test_blocks_of_80_clients_in_3():
  blocks = mixtures.block_of(80, 3)
  np.testing.assert_array_equal(np.bincount(blocks), [27, 27, 26])
  assert np.all(np.diff(blocks) >= 0)


def test_groups_draw_different_mixtures():
  draws = {
    mixtures.mixture_generator(seed, group).random()
    for seed in (0, 1)
    for group in ('participating', 'unseen')
  }
  assert len(draws) == 4
