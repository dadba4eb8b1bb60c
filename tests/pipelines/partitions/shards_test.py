import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from pipelines.partitions import apportion, division, shards
from tff_algos.core import errors

# (M, K'), number of classes, examples of each; shards of a class, examples of
# a shard and of a client, as the filter-decomposition paper's settings have it.
SETTINGS = [
  ((100, 2), 10, 5000, 20, 250, 500),
  ((100, 5), 10, 5000, 50, 100, 500),
  ((100, 5), 100, 500, 5, 100, 500),
  ((100, 20), 100, 500, 20, 25, 500),
  ((20, 20), 200, 500, 2, 250, 5000),
  ((20, 50), 200, 500, 5, 100, 5000),
  ((1000, 20), 200, 500, 100, 5, 100),
  ((1000, 50), 200, 500, 250, 2, 100),
]


def _divide(counts, num_clients, shards_per_client, seed=0, *, distinct=True):
  return shards.divide(
    shards.Options(shards_per_client, distinct),
    division.Request(np.asarray(counts), num_clients, 0, seed),
  )


@pytest.mark.parametrize('distinct', [True, False])
@pytest.mark.parametrize(
  ('setting', 'num_classes', 'count', 'of_class', 'size', 'of_client'), SETTINGS
)
def test_settings_of_the_paper(
  setting, num_classes, count, of_class, size, of_client, distinct
):
  num_clients, num_each = setting
  counts = np.full(num_classes, count)
  divided = _divide(counts, num_clients, num_each, distinct=distinct)
  assert divided.facts == {'shards_of_class': [of_class] * num_classes}
  quotas = apportion.apportion(divided.shares, counts)
  np.testing.assert_array_equal(quotas.sum(axis=0), counts)
  np.testing.assert_array_equal(
    quotas.sum(axis=1), np.full(num_clients, of_client)
  )
  assert np.all(quotas % size == 0)
  if distinct:
    assert quotas.max() == size
    assert set((quotas > 0).sum(axis=1)) == {num_each}


@hypothesis.given(
  counts=strategies.lists(strategies.integers(80, 150), min_size=5, max_size=9),
  num_clients=strategies.integers(10, 20),
  shards_per_client=strategies.integers(2, 3),
  seed=strategies.integers(0, 50),
)
def test_unequal_classes_are_used_up(
  counts, num_clients, shards_per_client, seed
):
  counts = np.array(counts)
  divided = _divide(counts, num_clients, shards_per_client, seed)
  quotas = apportion.apportion(divided.shares, counts)
  np.testing.assert_array_equal(quotas.sum(axis=0), counts)
  assert set((quotas > 0).sum(axis=1)) == {shards_per_client}
  for quota in quotas.T:  # Shards of one class are equal, up to one example.
    mine = quota[quota > 0]
    assert mine.max() - mine.min() <= 1


def test_plain_dealing_may_give_a_class_twice():
  divided = _divide(np.full(2, 100), 20, 2, distinct=False)
  twice = (divided.shares * 20 > 1.5).any(axis=1)
  assert 0 < twice.sum() < 20


def test_seeds():
  counts = np.full(10, 100)
  for distinct in (True, False):
    one, same, other = (
      _divide(counts, 20, 2, seed, distinct=distinct).shares
      for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert np.any(one != other)


@pytest.mark.parametrize(
  ('counts', 'num_clients', 'num_each', 'text'),
  [
    ([5, 5], 11, 1, '11 shards of at least one example .* only 10'),
    (
      [100, 1],
      3,
      1,
      'class 1 has 1 of 101 training examples, too few for one of 3',
    ),
    ([100, 100], 5, 3, 'shards_per_client is 3 and only 2 classes'),
    ([300, 50, 50], 4, 2, 'class 0 makes 6 shards for 4 clients.*distinct'),
  ],
)
def test_shards_that_cannot_be_cut(counts, num_clients, num_each, text):
  with pytest.raises(errors.PartitionError, match=text):
    _divide(counts, num_clients, num_each)


def test_bad_options():
  with pytest.raises(errors.ConfigError, match='shards_per_client must be'):
    shards.Options(0)
