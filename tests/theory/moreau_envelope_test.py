"""What is known of Moreau envelopes, on quadratics, held by the library's client.

F(w) = min_theta f(theta) + lambda/2 |theta - w|^2 with f(theta) = 1/2 (theta -
c)' A (theta - c) (Dinh et al. 2020; Tang, Guo and Guo 2021, Proposition 1).
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.stages.client import moreau_envelope

_LAMBDA = 15.0
_C = np.array([1.0, -2.0, 0.5])
_ONE_EXAMPLE = algorithm.ClientData(
  tf.zeros([1, 3]), tf.zeros([1]), tf.ones([1])
)


@functools.cache
def _graph(**options):
  config = moreau_envelope.MoreauEnvelopeConfig(
    proximal_weight=_LAMBDA, **options
  )

  @functools.partial(tf.function, autograph=False)
  def descend(matrix, tilt, start):
    def objective(theta, batch):
      way = (theta - tf.constant(_C, tf.float32))[:, tf.newaxis]
      value = tf.reduce_sum(way * tf.matmul(matrix, way)) / 2
      return value + tf.reduce_sum(tilt * theta), tf.zeros_like(batch.mask)

    models, _ = moreau_envelope.descend(
      objective, start, start, _ONE_EXAMPLE, tf.constant([0, 0]), config
    )
    return models

  return descend


def _descend(matrix, w, tilt=(0.0, 0, 0), **options):
  """Returns w and theta after the local steps, float64."""
  models = _graph(**options)(
    *(tf.constant(one, tf.float32) for one in (matrix, tilt, w))
  )
  return [one.numpy().astype(np.float64) for one in models]


def _gradient(matrix, w):
  """Returns lambda (w - theta) for a well solved problem at w."""
  _, theta = _descend(
    matrix,
    w,
    num_local_steps=1,
    client_learning_rate=1e-9,
    num_proximal_steps=150,
    personal_learning_rate=0.05,
  )
  return _LAMBDA * (w - theta)


def _rotated(curvatures, seed=0):
  """Returns a symmetric matrix with these eigenvalues, and its eigenvectors."""
  generator = np.random.default_rng(seed)
  vectors, _ = np.linalg.qr(generator.normal(size=(3, 3)))
  return (vectors * curvatures) @ vectors.T, vectors


def _envelope(matrix, w):
  theta = np.linalg.solve(
    matrix + _LAMBDA * np.eye(3), matrix @ _C + _LAMBDA * w
  )
  way, pull = theta - _C, theta - w
  return way @ matrix @ way / 2 + _LAMBDA / 2 * pull @ pull


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_gradient_is_what_finite_differences_say(seed):
  matrix, _ = _rotated([0.5, 2.0, 6.0], seed)
  w = np.random.default_rng(seed).normal(size=3)
  expected = [
    (_envelope(matrix, w + step) - _envelope(matrix, w - step)) / 2e-4
    for step in 1e-4 * np.eye(3)
  ]
  np.testing.assert_allclose(_gradient(matrix, w), expected, rtol=2e-5)


def test_curvature_h_becomes_lambda_h_over_lambda_plus_h():
  """So mu-strong convexity is kept, as lambda mu / (lambda + mu); of curvatures
  within [-L, L] the envelope is lambda L / (lambda - L) smooth.
  """
  curvatures = np.array([-7.0, 0.5, 7.0])
  matrix, vectors = _rotated(curvatures)
  found = [v @ _gradient(matrix, _C + v) for v in vectors.T]
  expected = _LAMBDA * curvatures / (_LAMBDA + curvatures)
  np.testing.assert_allclose(found, expected, rtol=1e-4)
  smoothness = _LAMBDA * 7 / (_LAMBDA - 7)
  assert np.abs(found).max() == pytest.approx(smoothness, rel=1e-4)
  assert smoothness < _LAMBDA


def test_problem_without_a_minimum_is_not_solved():
  """Curvature -20 below -lambda: theta runs away, by 1.25 in each step."""
  matrix, vectors = _rotated([-20.0, 1.0, 1.0])
  assert np.abs(_gradient(matrix, _C + vectors[:, 0])).max() > 1e10


@pytest.mark.parametrize('error', [0.01, 0.02])
def test_a_constant_error_of_the_solver_leaves_a_floor(error):
  """Every solution is off by the same vector of length `error`: the gradient
  where w stays has the squared norm lambda^2 error^2. Twice the error, four
  times the floor: 0.0225 and 0.09.
  """
  a = 2.0
  tilt = -(a + _LAMBDA) * error * np.array([0.6, 0.8, 0])
  w, _ = _descend(
    a * np.eye(3),
    _C + 0.3,
    tilt,
    num_local_steps=200,
    client_learning_rate=1 / _LAMBDA,
    num_proximal_steps=1,
    personal_learning_rate=1 / (a + _LAMBDA),
  )
  gradient = a * _LAMBDA / (a + _LAMBDA) * (w - _C)
  np.testing.assert_allclose(
    gradient @ gradient, (_LAMBDA * error) ** 2, rtol=1e-3
  )


def test_steps_add_up_to_the_way():
  """eta times the sum of lambda (w_r - theta_r) is w_0 - w_R."""
  matrix, _ = _rotated([0.5, 2.0, 6.0])
  options = {
    'client_learning_rate': 0.02,
    'num_proximal_steps': 3,
    'personal_learning_rate': 0.05,
  }
  start = np.array([2.0, 1.0, -1.0])
  path = [start]
  gradients = []
  for num_local_steps in (1, 2, 3):
    w, theta = _descend(
      matrix, start, num_local_steps=num_local_steps, **options
    )
    gradients.append(_LAMBDA * (path[-1] - theta))
    path.append(w)
  np.testing.assert_allclose(
    0.02 * np.sum(gradients, axis=0), start - path[-1], rtol=1e-4
  )
