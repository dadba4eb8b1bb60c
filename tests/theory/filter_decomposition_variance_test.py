"""The variance of averages of clients' models (Chen and Qiu 2025, arXiv:2503.08652)."""

import itertools

import numpy as np

from tff_algos.algorithms.filter_decomposition import kernel_variance


def test_more_clients_leave_less_variance():
  """Enumerated: m of six, in proportion to (M - m) / m."""
  generator = np.random.default_rng(3)
  points = generator.normal(size=(6, 4))
  variances = []
  for count in (1, 2, 3, 5, 6):
    means = np.array(
      [
        points[list(s)].mean(axis=0)
        for s in itertools.combinations(range(6), count)
      ]
    )
    variances.append(kernel_variance.estimate(means).variance)
  factors = np.array([(6 - m) / m for m in (1, 2, 3, 5, 6)])
  np.testing.assert_allclose(variances, factors / 5 * variances[0], atol=1e-12)


def _descend(x, y, rate, num_steps, order):
  """SGD on (w.x - y)^2, one example a step."""
  w = np.zeros(2)
  for i in order[:num_steps]:
    w = w - rate * 2 * (x[i] @ w - y[i]) * x[i]
  return w


def test_averages_of_25_models_vary_a_fifth_as_much_as_those_of_5():
  """2,000 SGD solutions; 80 averages of 25 against 400 of 5.

  The ratio of sample variances of 160 and 800 numbers (two coordinates) has a
  relative standard deviation of sqrt(2/160 + 2/800) = 0.12; 0.6 is five.
  """
  generator = np.random.default_rng(4)
  solutions = []
  for _ in range(2000):
    y = generator.choice([-1.0, 1.0], size=20)
    x = 2 * y[:, None] + generator.normal(size=(20, 2))
    solutions.append(_descend(x, y, 0.02, 20, np.arange(20)))
  solutions = np.array(solutions)
  few, many = (
    kernel_variance.estimate(
      solutions.reshape(-1, size, 2).mean(axis=1)
    ).variance
    for size in (5, 25)
  )
  assert 5 / 1.6 < few / many < 5 * 1.6
