import numpy as np
import pytest

from tff_algos.algorithms.fed_soft import quadratic_risks

_POINTS = np.array([[1.0, 0.5], [-1, 1.5]])


def _same(hessian, minimizers):
  return quadratic_risks.QuadraticRisks(
    np.stack([hessian] * len(minimizers)), minimizers
  )


def test_gaps_are_the_least_and_the_largest_distance():
  points = np.array([[0.0, 0], [3, 4], [0, 2]])
  assert _same(np.eye(2), points).gaps == (2.0, 5.0)


def test_what_the_theorems_do_not_speak_of_is_refused():
  with pytest.raises(ValueError, match='at least 2 are needed'):
    _same(np.eye(2), _POINTS[:1])
  with pytest.raises(ValueError, match='source 0 is not strongly convex'):
    _same(np.ones([2, 2]), _POINTS)


def test_misassignment_is_the_largest_share_that_another_center_takes():
  x = np.ones((4, 1))
  centers = np.array([[0.0], [1], [9]])
  examples = [
    (x, np.array([0.1, 0.4, 0.6, 0.9])),
    (x, np.array([0.9, 0.2, 0.8, 1.0])),
    (x, np.array([9.0, 8, 9, 9])),
  ]
  assert quadratic_risks.misassignment(centers, examples) == 0.5
  assert quadratic_risks.misassignment(centers, examples[::-1]) == 1.0


@pytest.mark.parametrize(
  ('share', 'weight', 'separation'),
  [
    (0.9, 0.1, 0.6178),
    (0.9, 1.0, 0.4706),
    (0.9, 10.0, 0.1391),
    (0.7, 0.1, 0.1476),
    (0.7, 1.0, 0.0870),
  ],
)
def test_mixed_clients_draw_centers_together(share, weight, separation):
  """m / (1 + lambda (1 - m)), m the second eigenvalue of the mixing matrix."""
  mixture = np.array([[share, 1 - share], [1 - share, share]])
  found = quadratic_risks.fixed_centers(
    _same(np.eye(2), _POINTS), mixture, mixture, np.array([10, 10]), weight
  )
  ratio = (found[0] - found[1]) / (_POINTS[0] - _POINTS[1])
  np.testing.assert_allclose(ratio, separation, atol=5e-5)
  np.testing.assert_allclose(
    found.mean(axis=0), _POINTS.mean(axis=0), atol=1e-12
  )


@pytest.mark.parametrize('weight', [0.0, 0.8])
def test_fixed_centers_are_where_rounds_of_exact_solves_end(weight):
  """Any Hessians, mixtures, importance and sizes; who has no example counts
  for nothing."""
  generator = np.random.default_rng(1)
  roots = generator.normal(size=(3, 4, 4))
  hessians = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(4)
  minimizers = generator.normal(size=(3, 4))
  mixture = np.vstack([generator.dirichlet(np.ones(3), 6), np.zeros(3)])
  importance = np.maximum(generator.dirichlet(np.ones(3), 7), 0.05)
  sizes = np.array([3, 9, 4, 1, 7, 5, 0])
  found = quadratic_risks.fixed_centers(
    quadratic_risks.QuadraticRisks(hessians, minimizers),
    mixture,
    importance,
    sizes,
    weight,
  )
  centers = generator.normal(size=(3, 4))
  for _ in range(200):
    models = np.zeros((7, 4))
    for k in range(6):
      u, v = mixture[k], importance[k]
      matrix = sum(u[s] * hessians[s] for s in range(3))
      matrix = matrix + weight * sum(v) * np.eye(4)
      right = sum(
        u[s] * hessians[s] @ minimizers[s] + weight * v[s] * centers[s]
        for s in range(3)
      )
      models[k] = np.linalg.solve(matrix, right)
    weights = importance * sizes[:, None]
    centers = (weights / weights.sum(axis=0)).T @ models
  np.testing.assert_allclose(found, centers, atol=1e-10)


def test_a_center_that_fits_nobody_averages_by_examples():
  mixture = np.array([[1.0, 0], [0, 1]])
  found = quadratic_risks.fixed_centers(
    _same(np.eye(2), _POINTS), mixture, np.array([[1.0, 0], [1, 0]]),
    np.array([30, 10]), 0.5,
  )  # fmt: skip
  # Both centres are the same mean, and everybody is pulled to the first.
  mean = (3 * _POINTS[0] + _POINTS[1]) / 4
  np.testing.assert_allclose(found, [mean, mean])
