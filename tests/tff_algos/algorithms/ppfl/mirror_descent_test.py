"""Tests of the mirror step: it is a minimum, and stays on the simplex."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.ppfl import mirror_descent

_GENERATOR = np.random.default_rng(0)


def _step(point, gradient, learning_rate, floor=0.0):
  return mirror_descent.entropic_step(
    tf.constant(point), tf.constant(gradient), learning_rate, floor
  ).numpy()


def _divergence(u, v):
  return np.sum(u * np.log(u / v), axis=-1)


@pytest.mark.parametrize('learning_rate', [0.01, 0.7, 20.0])
def test_step_is_the_minimum_and_has_the_value_of_the_closed_form(
  learning_rate,
):
  """min <g, u - c> + KL(u, c) / eta = -log <c, exp(-eta g)> / eta - <g, c>; a
  step with exp(exp(.)) in place of exp(.) is above it.
  """
  point = _GENERATOR.dirichlet(np.ones(4))
  gradient = _GENERATOR.normal(size=4)

  def value(u):
    linear = np.sum(gradient * (u - point), axis=-1)
    return linear + _divergence(u, point) / learning_rate

  stepped = _step(point, gradient, learning_rate)
  lowest = -np.log(np.sum(point * np.exp(-learning_rate * gradient)))
  lowest = lowest / learning_rate - gradient @ point
  np.testing.assert_allclose(value(stepped), lowest, rtol=1e-9, atol=1e-12)
  others = _GENERATOR.dirichlet(np.ones(4), 5_000)
  near = 0.99 * stepped + 0.01 * others
  assert value(others).min() >= lowest - 1e-12
  assert value(near).min() >= lowest - 1e-12
  if learning_rate < 1:  # Else the double exponential overflows.
    twice = point * np.exp(np.exp(-learning_rate * gradient))
    assert value(twice / twice.sum()) > lowest + 1e-9


def test_small_steps_follow_the_simplexs_gradient_flow():
  """c+ = c - eta (diag(c) - c c') g + O(eta^2)."""
  point = _GENERATOR.dirichlet(np.ones(5))
  gradient = _GENERATOR.normal(size=5)
  slope = point * gradient - point * (point @ gradient)
  errors = [
    np.abs(_step(point, gradient, eta) - (point - eta * slope)).max()
    for eta in (1e-2, 1e-3)
  ]
  assert errors[1] < 1e-5
  np.testing.assert_allclose(errors[0] / errors[1], 100, rtol=0.05)


def test_mapping_is_steep_enough_and_lipschitz():
  """Di et al., Eqs. 35 and 36."""
  for _ in range(200):
    point = _GENERATOR.dirichlet(np.ones(4))
    first, second = _GENERATOR.normal(size=(2, 4)) * 3
    eta = 10 ** _GENERATOR.uniform(-3, 1)
    mappings = [(point - _step(point, g, eta)) / eta for g in (first, second)]
    norm = float(
      mirror_descent.squared_mapping_norm(
        tf.constant(point), tf.constant(_step(point, first, eta)), eta
      )
    )
    np.testing.assert_allclose(norm, np.abs(mappings[0]).sum() ** 2)
    assert first @ mappings[0] >= norm - 1e-9
    gap = np.abs(mappings[0] - mappings[1]).sum()
    assert gap <= np.abs(first - second).max() + 1e-9


def test_ten_thousand_steep_steps_stay_on_the_simplex():
  """float32, gradients of up to a thousand, and back again."""
  gradients = tf.constant(
    _GENERATOR.uniform(-1e3, 1e3, (10_000, 3, 4)).astype(np.float32)
  )

  @tf.function(autograph=False)
  def run():
    return tf.scan(
      lambda point, g: mirror_descent.entropic_step(point, g, 1.0),
      gradients,
      tf.fill([3, 4], 0.25),
    )

  points = run().numpy()
  assert np.isfinite(points).all()
  np.testing.assert_allclose(points.sum(axis=-1), 1, atol=1e-6)
  assert points.min() >= mirror_descent.FLOOR * 0.999
  # The floor lets what was lost come back.
  largest = points.argmax(axis=-1)
  assert all(len(np.unique(column)) == 4 for column in largest.T)


def test_without_a_floor_a_coordinate_dies():
  point = _step(np.array([0.5, 0.5], 'f'), np.array([1e3, 0], 'f'), 1.0)
  assert point.tolist() == [0, 1]
  floored = _step(np.array([0.5, 0.5], 'f'), np.array([1e3, 0], 'f'), 1.0, 1e-6)
  np.testing.assert_allclose(floored, [1e-6, 1], rtol=1e-5)


def test_equal_gradients_and_rate_zero_change_nothing():
  point = np.array([0.2, 0.3, 0.5])
  np.testing.assert_allclose(_step(point, np.full(3, 7.0), 1.0), point)
  np.testing.assert_allclose(_step(point, np.array([1.0, 2, 3]), 0.0), point)


def test_nan_is_not_hidden():
  assert np.isnan(_step(np.array([0.5, 0.5]), np.array([np.nan, 0]), 1.0)).any()
