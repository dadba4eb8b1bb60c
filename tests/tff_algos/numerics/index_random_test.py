"""Tests of the counter-based random numbers.

The statistical tests run on fixed seeds, so they cannot flicker; the stated
false-alarm rate is the chance that a good hash fails one at another seed.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.testing import index_hash
from tff_algos.core import seeds
from tff_algos.numerics import index_random

_FALSE_ALARM = 1e-6


def _seed(*words):
  return tf.constant(words, tf.int32)


def _first_bits_and_orders(client_seeds):
  """Returns the bits of counter 0 and an order of 4 rows, for each seed."""

  def of_one(seed):
    return (
      index_random.random_bits(seed, tf.constant(0)),
      index_random.shuffled_epochs(seed, tf.ones([4]), 1)[0],
    )

  graph = tf.function(
    lambda stack: tf.map_fn(
      of_one, stack, fn_output_signature=(tf.uint32, tf.int32)
    )
  )
  return graph(tf.constant(client_seeds))


def _check_uniform(counts):
  """Chi-square against equal shares; false-alarm rate 1e-6."""
  counts = np.asarray(counts, np.float64).ravel()
  statistic = np.sum((counts - counts.mean()) ** 2) / counts.mean()
  limit = stats.chi2.isf(_FALSE_ALARM, counts.size - 1)
  assert statistic < limit, f'chi-square {statistic:.1f}, limit {limit:.1f}'


@pytest.mark.parametrize(
  'seed', [(0, 0), (1, 2), (-1, -(2**31)), (2**31 - 1, 12345)]
)
def test_bits_agree_with_the_second_implementation(seed):
  rows = [0, 1, 2, 17, 2**20, 2**31 - 1]
  epochs = [0, 3]
  bits = index_random.random_bits(
    _seed(*seed), tf.constant(epochs)[:, tf.newaxis], tf.constant(rows)
  )
  assert bits.dtype == tf.uint32
  expected = [
    [index_hash.random_bits(seed, epoch, row) for row in rows]
    for epoch in epochs
  ]
  np.testing.assert_array_equal(bits, expected)
  assert int(index_random.random_bits(_seed(*seed))) == index_hash.random_bits(
    seed
  )


def test_a_graph_gives_the_same_bits_as_eager_mode():
  rows = tf.range(100)
  graph = tf.function(index_random.random_bits)
  np.testing.assert_array_equal(
    graph(_seed(5, 6), rows), index_random.random_bits(_seed(5, 6), rows)
  )


@pytest.mark.parametrize('seed', [(0, 0), (3, -4)])
@pytest.mark.parametrize('shift', [0, 8, 16, 24])
def test_every_byte_is_uniform(seed, shift):
  """Chi-square of 2**16 values in 256 bins; false-alarm rate 1e-6 each."""
  bits = index_random.random_bits(_seed(*seed), tf.range(2**16)).numpy()
  assert bits.min() >= 0
  assert bits.max() < 2**32
  _check_uniform(np.bincount(bits >> shift & 255, minlength=256))


def test_pairs_of_neighbours_are_uniform():
  """Chi-square of 2**15 pairs in 64 x 64 bins; false-alarm rate 1e-6."""
  bits = index_random.random_bits(_seed(8, 9), tf.range(2**16)).numpy() >> 26
  _check_uniform(np.bincount(bits[::2] * 64 + bits[1::2], minlength=4096))


@pytest.mark.parametrize('word', [0, 1])
def test_neighbouring_seeds_give_unrelated_values(word):
  """Chi-square of 2**12 seeds in 64 bins; false-alarm rate 1e-6 each."""
  words = np.zeros([2**12, 2], np.int32)
  words[:, word] = np.arange(2**12)
  bits, _ = _first_bits_and_orders(words)
  _check_uniform(np.bincount(bits.numpy() >> 26, minlength=64))


@pytest.mark.parametrize('limit', [1, 2, 9, 2**15])
def test_numbers_below_a_limit_are_uniform(limit):
  """Chi-square of 2**16 values in up to 9 bins; false-alarm rate 1e-6 each."""
  numbers = index_random.random_below(limit, _seed(4, 5), tf.range(2**16))
  assert numbers.dtype == tf.int32
  assert 0 <= int(tf.reduce_min(numbers)) <= int(tf.reduce_max(numbers)) < limit
  num_bins = min(limit, 8) if limit != 9 else 9
  if limit > 1:
    bins = numbers.numpy() * num_bins // limit
    _check_uniform(np.bincount(bins, minlength=num_bins))
  bits = index_hash.random_bits((4, 5), 17)
  assert int(numbers[17]) == (bits >> 16) * limit >> 16


def test_epochs_are_permutations_and_agree_with_the_second_implementation():
  seed = seeds.derive_seed(3, 'train', 1, 'c1')
  orders = index_random.shuffled_epochs(seed, tf.ones([13]), 4).numpy()
  for epoch, order in enumerate(orders):
    assert order.tolist() == index_hash.shuffled(seed, epoch, 13)
  assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize('capacity', [5, 8, 64, 1000])
def test_padding_changes_no_order_and_stands_behind(capacity):
  seed = _seed(11, 12)
  mask = tf.cast(tf.range(capacity) < 5, tf.float32)
  orders = index_random.shuffled_epochs(seed, mask, 3).numpy()
  alone = index_random.shuffled_epochs(seed, tf.ones([5]), 3).numpy()
  np.testing.assert_array_equal(orders[:, :5], alone)
  np.testing.assert_array_equal(
    orders[:, 5:], np.tile(np.arange(5, capacity), (3, 1))
  )


def test_padding_may_lie_between_real_rows():
  mask = tf.constant([0.0, 1, 0, 1, 1])
  orders = index_random.shuffled_epochs(_seed(1, 1), mask, 6).numpy()
  for order in orders:
    assert sorted(order[:3]) == [1, 3, 4]
    assert order[3:].tolist() == [0, 2]


def test_no_rows_and_no_real_rows():
  nothing = index_random.shuffled_epochs(_seed(1, 2), tf.zeros([0]), 2)
  assert nothing.shape == (2, 0)
  padding = index_random.shuffled_epochs(_seed(1, 2), tf.zeros([3]), 1)
  assert padding.numpy().tolist() == [[0, 1, 2]]


def test_both_numbers_of_a_secret_seed_are_drawn():
  """False alarm: two equal ones of 1,000, 1e-4, for another seed."""
  found = [index_random.derive_secret(_seed(2, 3), n) for n in range(1000)]
  assert [len({*column}) for column in np.transpose(found).tolist()] == [
    1000
  ] * 2


def _count_permutations(orders):
  ids = {p: i for i, p in enumerate(itertools.permutations(range(4)))}
  return np.bincount([ids[tuple(order)] for order in orders], minlength=24)


def test_all_orders_of_four_rows_are_equally_likely_over_epochs():
  """Chi-square of 24,000 epochs in 24 bins; false-alarm rate 1e-6."""
  orders = index_random.shuffled_epochs(_seed(2, 3), tf.ones([4]), 24_000)
  _check_uniform(_count_permutations(orders.numpy().tolist()))


def test_all_orders_of_four_rows_are_equally_likely_over_clients():
  """Chi-square of 4,800 clients' seeds in 24 bins; false-alarm rate 1e-6."""
  client_seeds = [
    seeds.derive_seed(0, 'train', 1, f'c{i}') for i in range(4800)
  ]
  _, orders = _first_bits_and_orders(np.stack(client_seeds))
  _check_uniform(_count_permutations(orders.numpy().tolist()))
