"""Averages of models on the two Gaussians."""

import numpy as np
import pytest

from tff_algos.algorithms.filter_decomposition import averaged_models


def _paths(num_models, num_paths, num_steps=30, seed=0):
  return averaged_models.average_paths(
    num_models,
    num_paths,
    num_steps,
    start=np.array([1.0, -0.5]),
    learning_rate=0.01,
    generator=np.random.default_rng(seed),
  )


def test_the_loss_is_that_of_a_million_examples():
  generator = np.random.default_rng(1)
  y = generator.choice([-1.0, 1.0], size=1_000_000)
  x = 2 * y[:, None] + generator.normal(size=(len(y), 2))
  for w in ([0.0, 0.0], [0.3, -0.1], [1.0, 0.5]):
    np.testing.assert_allclose(
      averaged_models.loss(w), np.mean((x @ w - y) ** 2), rtol=0.01
    )
  np.testing.assert_allclose(averaged_models.OPTIMUM, [2 / 9, 2 / 9])
  least = averaged_models.loss(averaged_models.OPTIMUM)
  np.testing.assert_allclose(least, 1 / 9)
  around = averaged_models.OPTIMUM + 0.01 * generator.normal(size=(50, 2))
  assert averaged_models.loss(around).min() > least


def test_a_step_of_one_model_by_hand():
  (path,) = _paths(1, 1, num_steps=1)
  generator = np.random.default_rng(0)
  y = generator.choice([-1.0, 1.0], size=(1, 1))[0, 0]
  x = 2 * y + generator.normal(size=(1, 1, 2))[0, 0]
  start = np.array([1.0, -0.5])
  slope = 2 * (start @ x - y) * x
  np.testing.assert_allclose(path, [start, start - 0.01 * slope])


def test_the_mean_path_is_gradient_descent_on_the_loss():
  """E slope = 2 (E[x x^T] w - E[x y]), with I + mu mu^T and mu."""
  mean = _paths(5, 4000).mean(axis=0)
  w = np.array([1.0, -0.5])
  second = np.eye(2) + np.full((2, 2), 4.0)
  for found in mean:
    np.testing.assert_allclose(found, w, atol=0.01)
    w = w - 0.01 * 2 * (second @ w - 2)


@pytest.mark.parametrize('step', [1, 10, 30])
def test_25_models_vary_a_fifth_as_much_as_5(step):
  """4,000 paths each: the ratio's relative deviation is some 3 %; 15 % is five."""
  few, many = (_paths(size, 4000, seed=size)[:, step] for size in (5, 25))
  np.testing.assert_allclose(
    few.var(axis=0).sum() / many.var(axis=0).sum(), 5, rtol=0.15
  )
