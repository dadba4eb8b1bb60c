"""Tests of robust means by coordinate: by hand, and against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import robust_oracle, stacks
from tff_algos.numerics import robust_coordinates

_ALL = np.ones(9, bool)


def test_median_of_odd_and_even_numbers_by_hand():
  rows = {'w': tf.constant([[1.0, -3], [7, 0], [2, 8], [100, 5]])}
  found = robust_coordinates.median(rows, tf.constant([True] * 4))
  np.testing.assert_array_equal(found['w'], [4.5, 2.5])
  found = robust_coordinates.median(rows, tf.constant([True] * 3 + [False]))
  np.testing.assert_array_equal(found['w'], [2, 0])


@pytest.mark.parametrize('num_trimmed', [0, 1, 3, 4])
def test_trimmed_mean_is_that_of_sorted_columns(num_trimmed):
  rows = stacks.normal_rows(9)
  found = robust_coordinates.trimmed_mean(
    stacks.stack(rows), tf.constant(_ALL), num_trimmed
  )
  np.testing.assert_allclose(
    stacks.flat(found),
    robust_oracle.trimmed_mean(rows, num_trimmed),
    atol=1e-6,
  )


def test_too_much_trimming_is_the_median():
  rows = stacks.normal_rows(8)
  found = robust_coordinates.trimmed_mean(
    stacks.stack(rows), tf.constant(_ALL[:8]), 4
  )
  np.testing.assert_allclose(
    stacks.flat(found), np.median(rows, axis=0), atol=1e-7
  )


@pytest.mark.parametrize('absent', [(1e30, 1e30), (-1e30, 0), (np.nan, 0)])
def test_rows_that_are_not_real_are_in_no_mean(absent):
  rows = stacks.normal_rows(9)
  rows[2], rows[5] = absent
  is_real = _ALL.copy()
  is_real[[2, 5]] = False
  stack = stacks.stack(rows)
  for found, expected in (
    (
      robust_coordinates.trimmed_mean(stack, tf.constant(is_real), 2),
      robust_oracle.trimmed_mean(rows[is_real], 2),
    ),
    (
      robust_coordinates.mean_around_median(stack, tf.constant(is_real), 7),
      rows[is_real].mean(axis=0),
    ),
  ):
    np.testing.assert_allclose(stacks.flat(found), expected, atol=1e-6)


def test_mean_around_median_by_hand():
  """Of 0, 1, 2, 4, 9 the three nearest to 2 are 1, 2 and either 0 or 4."""
  rows = {'w': tf.constant([[9.0], [0], [2], [4], [1]])}
  everyone = tf.constant([True] * 5)
  found = [
    float(robust_coordinates.mean_around_median(rows, everyone, n)['w'][0])
    for n in (1, 2, 3, 5)
  ]
  np.testing.assert_allclose(found, [2, 1.5, 1, 3.2], rtol=1e-6)


def test_values_near_the_largest_number_do_not_overflow():
  rows = {'w': tf.fill([4, 1], 3e38)}
  everyone = tf.constant([True] * 4)
  found = robust_coordinates.trimmed_mean(rows, everyone, 0)
  np.testing.assert_allclose(found['w'], [3e38], rtol=1e-6)
