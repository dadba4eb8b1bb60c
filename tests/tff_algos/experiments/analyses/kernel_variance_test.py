"""Tests of variances by hand."""

import numpy as np

from tff_algos.experiments.analyses import kernel_variance


def test_estimate_by_hand():
  """Around (1, 2): (1 + 4 + 1 + 4) / 2 = 5, over 1 + 4."""
  models = np.array([[[0.0, 0.0]], [[2.0, 4.0]]])
  assert kernel_variance.estimate(models) == (5, 1)


def test_estimate_around_zero_has_no_relative_variance():
  assert kernel_variance.estimate([[1.0], [-1.0]]) == (1, 0)
  assert kernel_variance.estimate([[3.0], [3.0]]) == (0, 0)
