"""Tests of variances by hand; tests/theory has them by Monte Carlo."""

import numpy as np

from tff_algos.algorithms.filter_decomposition import kernel_variance


def test_estimate_by_hand():
  """Around (1, 2): (1 + 4 + 1 + 4) / 2 = 5, over 1 + 4."""
  models = np.array([[[0.0, 0.0]], [[2.0, 4.0]]])
  assert kernel_variance.estimate(models) == (5, 1)


def test_estimate_around_zero_has_no_relative_variance():
  assert kernel_variance.estimate([[1.0], [-1.0]]) == (1, 0)
  assert kernel_variance.estimate([[3.0], [3.0]]) == (0, 0)


def test_one_client_has_no_gap():
  assert kernel_variance.gap_of_independent_kernels([1.0], 7.0) == 0
  shares = np.full(4, 0.25)
  gap = kernel_variance.gap_of_independent_kernels(shares, 2.0)
  np.testing.assert_allclose(gap, 2 / 16 - 2 / 4)


def test_variances_of_two_clients_by_hand():
  """S = 1/2; first order 4 * 3 + 9 * 5 = 57, second 15."""
  law = kernel_variance.FactorLaw(2.0, 3.0, 5.0, 3.0)
  shares = [0.5, 0.5]
  assert kernel_variance.variance_of_mean(shares, law) == (57 + 15) / 2
  assert kernel_variance.variance_of_product(shares, law) == 57 / 2 + 15 / 4
