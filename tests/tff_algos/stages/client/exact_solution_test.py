"""Tests of exact local solutions against the normal equations."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, points, toys
from tff_algos.core import algorithm, errors
from tff_algos.models import linear
from tff_algos.stages.client import exact_solution, objectives, weighted_data

_START = np.array([0.2, -0.4, 1.0], np.float32)
_WEIGHT = 0.7
_CENTER = np.array([0.5, 0.5, -1], np.float32)


def _data(size, capacity=None, seed=0):
  """Examples; behind `size` of them others, which the mask leaves out."""
  x, y = client_data.regression(capacity or size, seed)
  mask = (np.arange(len(y)) < size).astype(np.float32)
  return client_data.build(x, y)._replace(mask=tf.constant(mask))


def _objective(weight):
  loss = objectives.mean_loss(toys.linear(3), 0.5)
  if not weight:
    return loss
  center = {'kernel': tf.constant(_CENTER[:, np.newaxis])}
  return objectives.ProximalLoss(loss, center, weight)


def _solve(data, weight=0.0):
  weights, loss = exact_solution.solve(
    _objective(weight), {'kernel': tf.constant(_START[:, np.newaxis])}, data
  )
  return weights['kernel'].numpy()[:, 0], loss


def _expected(data, weight=0.0):
  """The normal equations of 1/2 mean (x w - y)^2 + weight / 2 |w - c|^2."""
  real = data.mask.numpy() > 0
  x, y = (part.numpy()[real].astype(np.float64) for part in data[:2])
  return np.linalg.solve(
    x.T @ x / len(y) + weight * np.eye(3), x.T @ y / len(y) + weight * _CENTER
  )


def test_targets_in_natural_units_are_fitted_as_well():
  """House prices: the slope at the start is 1e5 times the curvature."""
  data = _data(200)
  data = data._replace(y=1e5 * data.y + 2e5)
  weights, _ = _solve(data)
  np.testing.assert_allclose(weights, _expected(data), rtol=2e-5)


@pytest.mark.parametrize('weight', [0.0, _WEIGHT])
@pytest.mark.parametrize('capacity', [8, 13])
def test_solution_is_that_of_the_normal_equations(weight, capacity):
  data = _data(8, capacity)
  weights, loss = _solve(data, weight)
  np.testing.assert_allclose(weights, _expected(data, weight), rtol=2e-5)
  residual = data.x.numpy()[:8] @ _START - data.y.numpy()[:8]
  np.testing.assert_allclose(loss.total, (residual**2).sum(), rtol=1e-5)
  assert float(loss.weight) == 8


def test_a_start_at_the_centre_is_pulled_as_any_other():
  """As clients start from the server's model, which is their centre."""
  data, objective = _data(8), _objective(_WEIGHT)
  weights, _ = exact_solution.solve(objective, objective.center, data)
  np.testing.assert_allclose(
    weights['kernel'][:, 0], _expected(data, _WEIGHT), rtol=2e-5
  )


def test_of_many_solutions_the_nearest_to_the_start_is_taken():
  """Two examples, three weights: start + X^+ (y - X start)."""
  data = _data(2)
  x, y = data.x.numpy().astype(np.float64), data.y.numpy()
  weights, _ = _solve(data)
  np.testing.assert_allclose(
    weights, _START + np.linalg.pinv(x) @ (y - x @ _START), rtol=1e-4
  )


def test_without_examples_the_start_stays_or_the_center_pulls():
  weights, loss = _solve(_data(0, 4))
  np.testing.assert_array_equal(weights, _START)
  assert float(loss.weight) == float(loss.total) == 0
  weights, _ = _solve(_data(0, 4), _WEIGHT)
  np.testing.assert_allclose(weights, _CENTER, rtol=1e-6)


def test_a_structure_with_a_bias_is_solved_leaf_by_leaf():
  model = linear.build_linear_regression(linear.LinearConfig(), (3,), 1)
  data = _data(9)
  weights, _ = exact_solution.solve(
    objectives.mean_loss(model), model.initialize(tf.constant([0, 1])), data
  )
  columns = np.concatenate([data.x.numpy(), np.ones([9, 1])], axis=1)
  expected = np.linalg.lstsq(columns, data.y.numpy(), rcond=None)[0]
  np.testing.assert_allclose(weights['kernel'][:, 0], expected[:3], rtol=1e-4)
  np.testing.assert_allclose(weights['bias'], expected[3:], rtol=1e-4)


def test_stacked_models_of_weighted_examples_are_solved_each_by_itself():
  """FedEM's problem: weighted least squares, one for each of two models."""
  data = _data(8, 11)
  parts = np.random.default_rng(3).uniform(0.1, 1, (11, 2)).astype(np.float32)
  weights, _ = exact_solution.solve(
    objectives.weighted_mean_losses(toys.linear(3)),
    {'kernel': tf.constant(np.stack([_START, -_START])[..., np.newaxis])},
    weighted_data.WeightedData(data, tf.constant(parts)),
  )
  x, y = data.x.numpy()[:8], data.y.numpy()[:8]
  for s in range(2):
    weighted = x.T * parts[:8, s]
    expected = np.linalg.solve(weighted @ x, weighted @ y)
    np.testing.assert_allclose(weights['kernel'][s, :, 0], expected, rtol=1e-4)


def test_nan_in_an_example_makes_this_client_nan_and_no_error():
  data = _data(5)
  x = data.x.numpy()
  x[2, 0] = np.nan
  weights, _ = _solve(data._replace(x=tf.constant(x)))
  assert np.isnan(weights).all()


def test_clients_are_vectorized():
  stack = [_data(6, 8, seed) for seed in range(3)]
  stacked = tf.nest.map_structure(lambda *rows: tf.stack(rows), *stack)
  start = {'kernel': tf.constant(_START[:, np.newaxis])}

  @tf.function(autograph=False)
  def solve(data):
    return tf.vectorized_map(
      lambda one: exact_solution.solve(_objective(_WEIGHT), start, one)[0],
      data,
      fallback_to_while_loop=False,
    )

  weights = solve(stacked)['kernel'][..., 0]
  expected = [_expected(data, _WEIGHT) for data in stack]
  np.testing.assert_allclose(weights, expected, rtol=2e-5)


def test_large_models_are_refused():
  model = points.model(513)
  data = algorithm.ClientData(tf.zeros([2, 513]), tf.zeros([2]), tf.ones([2]))
  text = "at most 512 parameters .* the model has 513; use solver 'descent'"
  with pytest.raises(errors.ConfigError, match=text):
    exact_solution.solve(
      objectives.mean_loss(model), {'point': tf.zeros([513])}, data
    )
