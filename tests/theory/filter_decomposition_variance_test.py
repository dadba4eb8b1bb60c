"""The variance of the mean of kernels and of the product of mean factors.

Chen and Qiu (2025), arXiv:2503.08652, Proposition 5.1; and what products of
independent factors really have.
"""

import itertools

import numpy as np
import pytest

from tff_algos.algorithms.filter_decomposition import kernel_variance


def test_proposition_5_1_as_stated():
  """All kernels, latent ones too, independent: sum p^2 against (sum p^2)^2.

  A sample variance of 100,000 draws has a relative standard deviation of
  sqrt(2 / 1e5) = 0.45 %: 2.5 % is 5.6 of them, false alarms below 1e-7.
  """
  shares = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
  generator = np.random.default_rng(0)
  draws = generator.normal(size=(100_000, 5, 5))
  real = np.einsum('nkk,k->n', draws, shares)
  everyone = np.einsum('nij,i,j->n', draws, shares, shares)
  squares = 0.4**2 + 0.3**2 + 3 * 0.1**2
  np.testing.assert_allclose(real.var(), squares, rtol=0.025)
  np.testing.assert_allclose(everyone.var(), squares**2, rtol=0.025)


@pytest.mark.parametrize(
  ('mean', 'of_mean', 'of_product'), [(0.0, 0.1, 0.01), (1.0, 0.3, 0.21)]
)
def test_what_products_of_ten_clients_have(mean, of_mean, of_product):
  """They share factors, so only the part of second order shrinks.

  Factors of mean a and variance 1 have products of variance 2 a^2 + 1. The mean
  of ten has a tenth of that; in the product of means the first order has a
  tenth, the second a hundredth.

  Means of 400,000 draws; products of normals have heavier tails: a kurtosis
  below 9 makes the relative standard deviation below 0.5 %; 3 % is six.
  """
  generator = np.random.default_rng(1)
  first, second = mean + generator.normal(size=(2, 400_000, 10))
  found = np.mean(first * second, axis=1).var()
  np.testing.assert_allclose(found, of_mean, rtol=0.03)
  found = (first.mean(axis=1) * second.mean(axis=1)).var()
  np.testing.assert_allclose(found, of_product, rtol=0.03)


def test_finite_population_identity_by_enumeration():
  """Two of five without replacement, Eq. 28: (M - m) / (m M (M - 1)) sum."""
  generator = np.random.default_rng(2)
  points = generator.normal(size=(5, 3))
  center = points.mean(axis=0)
  means = [
    points[list(s)].mean(axis=0) for s in itertools.combinations(range(5), 2)
  ]
  measured = np.mean([np.sum((mean - center) ** 2) for mean in means])
  spread = np.sum((points - center) ** 2)
  np.testing.assert_allclose(measured, (5 - 2) / (2 * 5 * 4) * spread)
  np.testing.assert_allclose(measured, (1 / 10 - 1 / (2 * 5 * 4)) * spread)
  np.testing.assert_allclose(np.mean(means, axis=0), center)


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


@pytest.mark.parametrize('variance', [1.0, 2.0])
def test_two_gaussians_have_their_optimum_in_closed_form(variance):
  """w* = mu / (variance + 8), loss variance / (variance + 8).

  From the moments: E[x x^T] = variance I + mu mu^T and E[x y] = mu.
  """
  mu = np.array([2.0, 2.0])
  second = variance * np.eye(2) + np.outer(mu, mu)
  w = np.linalg.solve(second, mu)
  np.testing.assert_allclose(w, mu / (variance + 8))
  loss = 1 - 2 * w @ mu + w @ second @ w
  np.testing.assert_allclose(loss, variance / (variance + 8))


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
