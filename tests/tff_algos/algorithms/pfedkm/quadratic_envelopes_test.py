"""Moreau envelopes of least-squares risks against their definition."""

import numpy as np
import pytest
from scipy import optimize

from tff_algos.algorithms.pfedkm import quadratic_envelopes
from tff_algos.numerics import quadratics

_RANDOM = np.random.default_rng(0)
# The second client has fewer examples than weights: a singular matrix.
_EXAMPLES = [
  (_RANDOM.normal(size=(n, 3)), _RANDOM.normal(size=n)) for n in (7, 2)
]
_MODELS = _RANDOM.normal(size=(2, 3))
_PULL, _SCALE = 4.0, 0.7


def _build(decay):
  return quadratic_envelopes.QuadraticEnvelopes(
    quadratics.least_squares(_EXAMPLES, _SCALE, decay), _PULL
  )


def _objective(client, decay):
  x, y = _EXAMPLES[client]

  def value(theta):
    error = _SCALE * np.mean((y - x @ theta) ** 2) + decay / 2 * theta @ theta
    far = theta - _MODELS[client]
    return error + _PULL / 2 * far @ far

  return value


@pytest.mark.parametrize('decay', [0.0, 0.3])
@pytest.mark.parametrize('client', [0, 1])
def test_value_and_minimiser_are_those_of_the_definition(client, decay):
  envelopes = _build(decay)
  found = optimize.minimize(_objective(client, decay), np.zeros(3), tol=1e-12)
  np.testing.assert_allclose(envelopes.values(_MODELS)[client], found.fun)
  theta = envelopes.minimizers(_MODELS)[client]
  np.testing.assert_allclose(theta, found.x, atol=1e-5)


def test_gradients_are_the_slopes_of_the_values():
  envelopes = _build(0.1)
  gradients, step = envelopes.gradients(_MODELS), 1e-5
  for j in range(3):
    ahead, behind = (
      envelopes.values(_MODELS + sign * step * np.eye(3)[j]) for sign in (1, -1)
    )
    slopes = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(gradients[:, j], slopes, rtol=1e-6, atol=1e-8)


def test_smoothness_is_the_largest_curvature_of_the_envelopes():
  """By the gradients' change along each axis, which is a row of the Hessian."""
  envelopes = _build(0.0)
  at_zero = envelopes.gradients(np.zeros((2, 3)))
  rows = [
    envelopes.gradients(np.tile(axis, (2, 1))) - at_zero for axis in np.eye(3)
  ]
  largest = np.linalg.eigvalsh(np.stack(rows, axis=1))[:, -1].max()
  np.testing.assert_allclose(envelopes.smoothness, largest)
  assert envelopes.smoothness < _PULL
