"""Tests of quadratics: least squares against their definition."""

import numpy as np
import pytest

from tff_algos.numerics import quadratics

_RANDOM = np.random.default_rng(0)


def _examples(*sizes):
  return [(_RANDOM.normal(size=(n, 3)), _RANDOM.normal(size=n)) for n in sizes]


def _build(examples, weight_decay=0.0):
  terms = quadratics.least_squares(examples, 0.7, weight_decay)
  return quadratics.Quadratics(terms.matrices, terms.minimizers)


@pytest.mark.parametrize('decay', [0.0, 0.3])
def test_values_and_gradients_are_those_of_the_examples(decay):
  examples = _examples(9, 4)
  terms = quadratics.least_squares(examples, 0.7, decay)
  points, found = _RANDOM.normal(size=(2, 3)), _build(examples, decay)
  for k, (x, y) in enumerate(examples):
    error = x @ points[k] - y
    value = 0.7 * np.mean(error**2) + decay / 2 * points[k] @ points[k]
    np.testing.assert_allclose(terms.values(points)[k], value)
    gradient = 1.4 * x.T @ error / len(y) + decay * points[k]
    np.testing.assert_allclose(found.gradients(points)[k], gradient)
    np.testing.assert_allclose(found.gradients(points[k])[k], gradient)
  eigenvalues = np.concatenate([np.linalg.eigvals(h) for h in found.hessians])
  np.testing.assert_allclose(found.strong_convexity, eigenvalues.min())
  np.testing.assert_allclose(found.smoothness, eigenvalues.max())


def test_hessians_without_full_rank_are_refused():
  """With 2 examples of 3 features, or none; rounding hides it in some."""
  for _ in range(50):
    with pytest.raises(ValueError, match='of client 1 is not strongly convex'):
      _build(_examples(9, 2))
    _build(_examples(9, 2), weight_decay=0.1)
  with pytest.raises(ValueError, match='of client 1 is not strongly convex'):
    _build(_examples(9, 0))
