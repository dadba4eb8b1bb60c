"""Tests of inner products between models, against NumPy in float64."""

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import stacks
from tff_algos.numerics import gram


def _stack(num_rows, seed=0, offset=0.0):
  generator = np.random.default_rng(seed)
  return OrderedDict(
    kernel=(offset + generator.normal(size=(num_rows, 7, 3))).astype('f'),
    bias=(offset + generator.normal(size=(num_rows, 4))).astype('f'),
  )


def _ones(num_rows):
  return tf.ones([num_rows], tf.float64)


@pytest.mark.parametrize('block', [5, 100])
def test_gram_is_that_of_the_flat_rows_less_their_mean(monkeypatch, block):
  """However the columns are cut."""
  monkeypatch.setattr(gram, '_BLOCK', block)
  rows = stacks.flat(_stack(6), 1)
  rows -= rows.mean(axis=0)
  found = gram.centered_gram([_stack(6)], _ones(6))
  np.testing.assert_allclose(found, rows @ rows.T, rtol=1e-12, atol=1e-12)


def test_equal_rows_are_exactly_0():
  """A mean with thirds in it would leave 1e-31."""
  stack = {'w': np.full([7, 5], 0.1, np.float32)}
  np.testing.assert_array_equal(gram.centered_gram([stack], _ones(7)), 0)


def test_only_rows_that_count_are_in_the_mean():
  first, second = _stack(4), _stack(2, seed=1)
  rows = np.concatenate([stacks.flat(one, 1) for one in (first, second)])
  rows -= rows[[0, 2, 3]].mean(axis=0)
  counts = tf.constant([1, 0, 1, 1, 0, 0], tf.float64)
  found = gram.centered_gram([first, second], counts)
  np.testing.assert_allclose(found, rows @ rows.T, rtol=1e-12, atol=1e-12)


def test_small_differences_of_large_rows_are_not_lost():
  """Rows about 1000 that differ by 1e-3: float32 products would be noise."""
  stack = _stack(5, offset=1000.0)
  stack = {name: leaf[:1] + 0.001 * leaf for name, leaf in stack.items()}
  rows = stacks.flat(stack, 1)
  expected = ((rows[:, np.newaxis] - rows) ** 2).sum(axis=2)
  found = gram.squared_distances(
    gram.centered_gram([stack], _ones(5)), tf.eye(5, dtype=tf.float64)
  )
  np.testing.assert_allclose(found, expected, rtol=1e-9)
  assert (expected[~np.eye(5, dtype=bool)] > 0).all()


def test_distances_to_combinations_and_exact_zeros():
  rows = stacks.flat(_stack(5), 1)
  mixtures = np.array([[0.5, 0.5, 0, 0, 0], [0, 0, 0, 1, 0]])
  expected = ((rows[:, np.newaxis] - mixtures @ rows) ** 2).sum(axis=2)
  found = gram.squared_distances(
    gram.centered_gram([_stack(5)], _ones(5)), tf.constant(mixtures)
  ).numpy()
  np.testing.assert_allclose(found, expected, rtol=1e-9)
  assert found[3, 1] == 0


def test_mean_distances_over_pairs():
  rows = np.array([[0, 0], [3, 4], [0, 10], [99, 0]], np.float32)
  table = gram.centered_gram([{'w': rows}], _ones(4))
  found = gram.mean_distances(
    table, tf.constant([0, 0, 1, 1]), tf.constant([True, True, True, False])
  )
  other = np.sqrt(3**2 + 6**2)
  np.testing.assert_allclose(
    found, [(5 + 10 + other) / 3, 5, (10 + other) / 2], rtol=1e-9
  )


def test_means_over_no_pair_are_nan_and_equal_rows_have_distance_0():
  table = gram.centered_gram([{'w': np.ones([2, 9], 'f')}], _ones(2))
  found = gram.mean_distances(table, tf.constant([0, 0]), tf.fill([2], True))
  np.testing.assert_array_equal(found, [0, 0, np.nan])


def test_a_huge_row_does_not_hide_the_distances_of_others():
  """Less a row that is not huge, they stay as precise as without it."""
  rows = np.array([[0, 0], [1, 2], [3, -1], [1e18, 1e18]], np.float32)
  table = gram.centered_gram(
    [{'w': rows}], tf.constant([1.0, 0, 0, 0], tf.float64)
  )
  mixtures = np.array([[0, 1, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])
  found = gram.squared_distances(table, tf.constant(mixtures)).numpy()
  exact = rows.astype(np.float64)
  expected = ((exact[:, np.newaxis] - mixtures @ exact) ** 2).sum(axis=2)
  np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_cosines_beside_a_zero_vector_are_zero():
  vectors = np.array([[1.0, 2], [-2, -4], [2, -1], [0, 0]])
  found = gram.cosines(tf.constant(vectors @ vectors.T)).numpy()
  expected = [[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
  np.testing.assert_allclose(found, expected, atol=1e-12)
