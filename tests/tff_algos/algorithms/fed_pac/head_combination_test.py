"""Tests of how heads are combined, against NumPy."""

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.fed_pac import features, head_combination


def test_moments_of_two_classes():
  """Features 1 and 3 of one class, and 5 of the other, of one number each."""
  sums = features.ClassSums(
    tf.constant([2.0, 1.0]), tf.constant([[4.0], [5.0]]), tf.constant(35.0)
  )
  moments = head_combination.moments(sums)
  np.testing.assert_allclose(moments.means, [[4 / 3], [5 / 3]], rtol=1e-6)
  expected = (35 / 3 - (16 + 25) / 9) / 3
  np.testing.assert_allclose(moments.variance, expected, rtol=1e-6)


def test_without_examples_moments_are_zero():
  nothing = features.ClassSums(
    tf.zeros([2]), tf.zeros([2, 1]), tf.constant(0.0)
  )
  assert not any(np.any(one) for one in head_combination.moments(nothing))


def _clients(means, variances):
  return head_combination.Moments(
    tf.constant(means, tf.float32), tf.constant(variances, tf.float32)
  )


def test_two_clients_by_hand():
  """a minimises a^2 v_0 + (1 - a)^2 (v_1 + d^2), so a = (v_1 + d^2) / sum."""
  shares = head_combination.shares(
    _clients([[[1.0]], [[1.5]]], [0.5, 0.25]), tf.constant([True, True])
  )
  first = (0.25 + 0.25) / (0.5 + 0.25 + 0.25)
  second = (0.5 + 0.25) / (0.25 + 0.5 + 0.25)
  expected = [[first, 1 - first], [1 - second, second]]
  np.testing.assert_allclose(shares, expected, atol=1e-4)


def test_alike_clients_share_by_their_variances_and_strangers_keep_apart():
  means = [[[0.0], [1.0]], [[0.0], [1.0]], [[900.0], [0.0]]]
  shares = head_combination.shares(
    _clients(means, [0.1, 0.3, 0.1]), tf.ones([3], tf.bool)
  )
  # 1 / variance, of a client with three times the variance.
  expected = [[0.75, 0.25, 0], [0.75, 0.25, 0], [0, 0, 1]]
  np.testing.assert_allclose(shares, expected, atol=1e-2)


def test_nobody_takes_from_who_is_not_there():
  shares = head_combination.shares(
    _clients(np.zeros([3, 2, 1]), [0.1, 0.0, 0.1]),
    tf.constant([True, False, True]),
  )
  np.testing.assert_allclose(shares[0], [0.5, 0, 0.5], atol=1e-4)
