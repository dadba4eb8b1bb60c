"""Tests of quadratics on the simplex, against all faces of it."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.fed_pac import simplex_quadratic


def _least_on_any_face(matrix, allowed):
  """The minimum, by the equations of every subset of coordinates."""
  best, where = np.inf, None
  for size in range(1, len(allowed) + 1):
    for face in itertools.combinations(allowed, size):
      inverse = np.linalg.pinv(matrix[np.ix_(face, face)]) @ np.ones(size)
      if abs(inverse.sum()) < 1e-12:
        continue
      point = np.zeros(len(matrix))
      point[list(face)] = inverse / inverse.sum()
      value = point @ matrix @ point
      if point.min() > -1e-9 and value < best:
        best, where = value, point
  return where


def _matrices(count, size, seed=0):
  """As of heads: a variance of each, and products of differences."""
  generator = np.random.default_rng(seed)
  points = generator.normal(size=(count, size, 3)) * 0.5
  ways = points[:, :1] - points
  variances = generator.uniform(0.01, 0.5, size=(count, size))
  return ways @ ways.transpose(0, 2, 1) + np.eye(size) * variances[:, None]


def test_minima_are_those_of_the_best_face():
  matrices = _matrices(6, 5)
  found = simplex_quadratic.minimize(
    tf.constant(matrices, tf.float32), tf.ones([5], tf.bool)
  )
  expected = [_least_on_any_face(one, range(5)) for one in matrices]
  np.testing.assert_allclose(found, expected, atol=1e-4)
  # Some have several clients, and some leave some out.
  assert 1 < (np.array(expected) > 1e-3).sum(axis=1).mean() < 5


def test_what_is_not_allowed_is_zero():
  (matrix,) = _matrices(1, 5, seed=3)
  allowed = np.array([False, True, True, False, True])
  found = simplex_quadratic.minimize(
    tf.constant(matrix, tf.float32), tf.constant(allowed)
  )
  expected = _least_on_any_face(matrix, np.flatnonzero(allowed))
  np.testing.assert_allclose(found, expected, atol=1e-4)
  assert not found.numpy()[~allowed].any()


@pytest.mark.parametrize('is_allowed', [[False, False], [True, False]])
def test_nothing_and_one_are_finite(is_allowed):
  found = simplex_quadratic.minimize(tf.zeros([2, 2]), tf.constant(is_allowed))
  np.testing.assert_allclose(found, np.array(is_allowed, float))


def test_eigenvalues_may_lie_far_apart():
  """Two alike and a stranger: the two share as 1 / variance."""
  matrix = np.diag([0.1, 0.3, 0.1]) + np.diag([0, 0, 1e6])
  found = simplex_quadratic.minimize(
    tf.constant(matrix, tf.float32), tf.ones([3], tf.bool)
  )
  np.testing.assert_allclose(found, [0.75, 0.25, 0], atol=1e-4)
