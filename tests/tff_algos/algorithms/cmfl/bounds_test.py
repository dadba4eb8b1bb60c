import itertools

import numpy as np
import pytest

from tff_algos.algorithms.cmfl import bounds


def _random(seed=0, num_clients=6):
  generator = np.random.default_rng(seed)
  roots = generator.normal(size=(num_clients, 3, 3))
  sizes = generator.integers(1, 20, num_clients).astype(float)
  return bounds.Objectives(
    roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(3),
    generator.normal(size=(num_clients, 3)),
    generator.uniform(0, 2, num_clients),
    sizes / sizes.sum(),
  )


def _points(centers, weights=None):
  """F_k = 1/2 |w - b_k|^2: L = mu = 1 and F_k^* = 0."""
  centers = np.asarray(centers, np.float64)
  num, dim = centers.shape
  return bounds.Objectives(
    np.tile(np.eye(dim), (num, 1, 1)),
    centers,
    np.zeros(num),
    np.full(num, 1 / num) if weights is None else np.asarray(weights),
  )


def test_two_points_by_hand():
  """b = -1 and 3: w^* = 1, F^* = 2 = Gamma; client 0 at w = 1 has 2."""
  two = _points([[-1.0], [3.0]])
  np.testing.assert_allclose(two.minimizer, [1])
  assert (two.smoothness, two.strong_convexity) == (1, 1)
  np.testing.assert_allclose(two.heterogeneity, 2)
  np.testing.assert_allclose(two.values(np.array([2.0])), [4.5, 0.5])
  np.testing.assert_allclose(two.gradients(np.array([2.0])), [[3], [-1]])
  np.testing.assert_allclose(two.skew(np.array([0]), np.array([2.0]), 0), 1.8)
  np.testing.assert_allclose(two.skew(np.array([1]), np.array([2.0]), 0), 0.2)
  np.testing.assert_allclose(two.skew(np.array([0, 1]), np.ones(1), 0), 1)


def test_the_minimum_is_one():
  """No point nearby is below it, and F is the weighted mean of F_k."""
  objectives = _random()
  best = objectives.minimizer
  value = lambda point: objectives.weights @ objectives.values(point)
  generator = np.random.default_rng(1)
  for _ in range(100):
    assert value(best + 0.1 * generator.normal(size=3)) > value(best)
  found = value(best) - objectives.weights @ objectives.minima
  np.testing.assert_allclose(objectives.heterogeneity, found)
  np.testing.assert_allclose(
    objectives.weights @ objectives.gradients(best), 0, atol=1e-12
  )


@pytest.mark.parametrize('size', [1, 2, 4, 6])
def test_the_best_committee_is_the_best_of_all(size):
  for seed in range(5):
    objectives = _random(seed)
    expected = min(
      objectives.mean_of(np.array(chosen), objectives.minima)
      for chosen in itertools.combinations(range(6), size)
    )
    np.testing.assert_allclose(objectives.best_committee(size), expected)


def test_skew_may_be_negative_with_few_selected():
  """F^* = 0, 1, 1, 1 and a committee of 2: the best mean is 1/2."""
  four = bounds.Objectives(
    np.ones([4, 1, 1]),
    np.arange(4.0)[:, np.newaxis],
    np.array([0.0, 1, 1, 1]),
    np.full(4, 0.25),
  )
  committee = four.best_committee(2)
  assert committee == 0.5
  assert four.skew(np.array([0]), np.zeros(1), committee) < 0


def test_without_heterogeneity_the_skew_at_the_minimum_is_not_defined():
  same = _points([[1.0], [1.0]])
  assert same.heterogeneity == 0
  assert np.isnan(same.skew(np.array([0]), np.ones(1), 0))


def test_regressions_have_the_gradients_of_their_losses():
  generator = np.random.default_rng(3)
  examples = [
    (generator.normal(size=(n, 2)), generator.normal(size=n)) for n in (5, 9)
  ]
  found = bounds.of_ridge_regressions(examples, 0.5, 0.3)
  np.testing.assert_allclose(found.weights, [5 / 14, 9 / 14])
  w = np.array([0.4, -2.0])
  for k, (x, y) in enumerate(examples):
    gradient = x.T @ (x @ w - y) / len(y) + 0.3 * w
    np.testing.assert_allclose(found.gradients(w)[k], gradient)
    value = 0.5 * np.mean((x @ w - y) ** 2) + 0.15 * w @ w
    np.testing.assert_allclose(found.values(w)[k], value)


@pytest.mark.parametrize('seed', range(5))
def test_fewer_examples_than_features_are_refused(seed):
  """Rounding makes the smallest eigenvalue of some positive."""
  x = np.random.default_rng(seed).normal(size=(6, 8))
  with pytest.raises(ValueError, match='client 0 is not strongly convex'):
    bounds.of_ridge_regressions([(x, np.ones(6))], 0.5, 0.0)


def test_steps_fall_as_those_of_the_theorem():
  """mu = 2, gamma = 4: 1 / 8, then 1 / 10."""
  assert [bounds.step(2.0, 4.0, t) for t in (0, 1)] == [0.125, 0.1]


def test_the_bound_by_hand():
  """L = 2, mu = 1, gamma = 8, T = 2, so 1 / 10 of what falls."""
  constants = bounds.Constants(2.0, 1.0, 1, 3.0, 0.5, 0.25, 0.75, 0.5, 1.5, 4.0)
  assert constants.offset == 8
  bound = bounds.theorem(constants, 2)
  np.testing.assert_allclose(
    bound,
    (
      0.1 * (8 * (96 + 0.5) + 96 * 0.25) / 1.5,
      0.1 * 8 * 4 * 0.75,
      0.1 * 2 * 8 * 4 / 2,
      16 * 0.75 * (3 - 1) / 3,
    ),
  )
  np.testing.assert_allclose(bound.total, sum(bound))
  # Many local steps need a larger offset.
  assert constants._replace(num_local_steps=20).offset == 20
  assert bounds.theorem(constants._replace(skew_min=0.0), 2).total == (np.inf)
