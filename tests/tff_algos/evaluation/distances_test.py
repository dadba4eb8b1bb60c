import numpy as np
import pytest

from tff_algos.evaluation import distances


def _pairs():
  rng = np.random.default_rng(0)
  p, q = rng.dirichlet(np.ones(5), (2, 20))
  p[3, 2] = q[3, 2] = 0  # A class that neither has.
  p[4, 1] = 0  # One that only q has.
  return p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)


def test_total_variation_is_the_largest_difference_over_events():
  p, q = _pairs()
  found = distances.total_variation(p, q)
  # The event {c: p_c > q_c} attains it.
  expected = [np.sum((a - b)[a > b]) for a, b in zip(p, q, strict=True)]
  np.testing.assert_allclose(found, expected, atol=1e-14)


def test_equal_and_disjoint_distributions():
  one, other = np.array([0.25, 0.75, 0, 0]), np.array([0, 0, 0.5, 0.5])
  found = distances.total_variation(one[None], np.stack([one, other]))
  np.testing.assert_allclose(found, [0, 1])


def test_standardized_shift_of_a_mixture():
  # Half N(0, 1), half N(3, 1): the variance of both together is 1 + 9 / 4.
  found = distances.standardized_shift([0.0], [1.0], [3.0], [1.0])
  assert found == pytest.approx(3 / np.sqrt(1 + 9 / 4))


def test_features_that_are_constant_count_if_they_differ():
  shift = distances.standardized_shift
  assert shift([5.0, 0], [0.0, 1], [5.0, 0], [0.0, 1]) == 0
  assert shift([5.0], [0.0], [5.0], [0.0]) == 0
  assert shift([5.0], [0.0], [6.0], [0.0]) == 2
