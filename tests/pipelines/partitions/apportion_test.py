import hypothesis
import numpy as np
import pytest
from hypothesis import strategies
from hypothesis.extra import numpy as numpy_strategies

from pipelines.partitions import apportion

_RAW = numpy_strategies.arrays(
  float,
  numpy_strategies.array_shapes(min_dims=2, max_dims=2, max_side=6),
  elements=strategies.floats(0, 1),
)


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
  counts = apportion.largest_remainder(np.array([mixture]), np.array([size]))
  np.testing.assert_array_equal(counts, [expected])


@hypothesis.given(_RAW, strategies.integers(0, 10_000))
def test_largest_remainder_is_near_and_adds_up(raw, size):
  raw = raw + (raw.sum(axis=1, keepdims=True) == 0)
  mixtures = raw / raw.sum(axis=1, keepdims=True)
  sizes = np.full(len(raw), size)
  counts = apportion.largest_remainder(mixtures, sizes)
  np.testing.assert_array_equal(counts.sum(axis=1), sizes)
  assert np.all(counts >= 0)
  assert np.all(np.abs(counts - mixtures * size) < 1 + 1e-6)


@hypothesis.given(_RAW, strategies.integers(0, 10_000))
def test_pools_that_are_shared_out_whole_are_used_up(raw, size):
  raw = raw + (raw.sum(axis=0) == 0)
  shares = raw / raw.sum(axis=0)
  available = size + np.arange(shares.shape[1])
  counts = apportion.apportion(shares, available)
  np.testing.assert_array_equal(counts.sum(axis=0), available)
  assert np.all(np.abs(counts - shares * available) < 1 + 1e-6)


def test_what_is_nobodys_share_stays_in_the_pool():
  shares = np.array([[0.25, 0.0], [0.5, 0.0], [0.0, 0.0]])
  np.testing.assert_array_equal(
    apportion.apportion(shares, np.array([40, 5])), [[10, 0], [20, 0], [0, 0]]
  )


def test_what_rounding_leaves_is_shared_out_too():
  """Shares that sum to 1 but for rounding, of a pool where that is an example."""
  shares = np.array([[0.5], [0.5 - 5e-10]])
  counts = apportion.apportion(shares, np.array([2 * 10**9]))
  np.testing.assert_array_equal(counts, [[10**9 + 1], [10**9 - 1]])


def test_deal_gives_what_the_quotas_say():
  pool = np.array([1, 0, 1, -1, 0, 1, 1])
  lot = np.array([5, 9, 3, 1, 2, 4, 8], np.uint64)
  quotas = np.array([[0, 1, 0], [2, 0, 1]])
  # Pool 0 by lot: rows 4, 1. Pool 1 by lot: rows 2, 5, 0, 6.
  np.testing.assert_array_equal(
    apportion.deal(pool, lot, quotas), [2, -1, 0, -1, 1, 0, -1]
  )


@hypothesis.given(strategies.data())
def test_deal_is_the_same_whatever_the_order(data):
  n = data.draw(strategies.integers(0, 30))
  generator = np.random.default_rng(data.draw(strategies.integers(0, 99)))
  pool = generator.integers(-1, 3, n)
  lot = generator.permutation(1000)[:n].astype(np.uint64)
  sizes = np.bincount(pool[pool >= 0], minlength=3)
  quotas = np.stack([generator.multinomial(s, [0.2, 0.3, 0.5]) for s in sizes])
  quotas[:, 2] = 0  # Something is left.
  owners = apportion.deal(pool, lot, quotas)
  order = generator.permutation(n)
  np.testing.assert_array_equal(
    apportion.deal(pool[order], lot[order], quotas), owners[order]
  )
  for p in range(3):
    dealt = owners[(pool == p) & (owners >= 0)]
    np.testing.assert_array_equal(np.bincount(dealt, minlength=3), quotas[p])
