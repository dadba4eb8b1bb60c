"""Tests of the bounds by hand; tests/theory holds runs against them."""

import numpy as np
import pytest

from tff_algos.algorithms.filter_decomposition import bounds as bounds

_PROBLEM = bounds.Problem(
  smoothness=4.0,
  strong_convexity=2.0,
  gradient_bound=3.0,
  heterogeneity_gap=0.5,
  start_distance=7.0,
  averaging_period=5,
)


def test_terms_by_hand():
  """gamma = 16; B = 8 * 16 * 9 + 6 * 4 / 2 = 1164."""
  assert _PROBLEM.step_offset == 16
  assert _PROBLEM._replace(averaging_period=20).step_offset == 20
  np.testing.assert_allclose(_PROBLEM.step_size(4), 2 / (2 * 20))
  np.testing.assert_allclose(_PROBLEM.drift(0.1), 4 * 0.01 * 16 * 9)
  np.testing.assert_allclose(
    _PROBLEM.recursion(7.0, 0.1), 0.8 * 7 + 0.01 * 1164
  )


def test_gaps_by_hand():
  """2 / mu^2 L / (gamma + T) = 2 / 20, and mu^2 / 4 |w_1 - w*|^2 = 7."""
  np.testing.assert_allclose(_PROBLEM.printed_gap(4, 9.0), 0.1 * (1164 + 9 + 7))
  np.testing.assert_allclose(_PROBLEM.gap(4, 9.0), 0.1 * (1164 + 9 + 17 * 7))


def test_number_of_steps_is_where_the_bound_is_reached():
  steps = _PROBLEM.num_steps(2.0, 9.0)
  np.testing.assert_allclose(_PROBLEM.gap(steps, 9.0), 2.0)


@pytest.mark.parametrize(
  ('num_clients', 'cohort_size', 'fed_avg', 'printed', 'pairs'),
  [
    (100, 10, 0.090909, 9.901e-7, 0.0099010),
    (20, 2, 0.473684, 6.203e-4, 0.248120),
    (1000, 100, 0.0090090, 9.900e-11, 9.900e-5),
    (100, 2, 0.494949, 2.499e-5, 0.249925),
    (100, 40, 0.0151515, 5.251e-8, 5.2505e-4),
    (7, 7, 0, 0, 0),
    (1, 1, 0, 0, 0),
  ],
)
def test_sampling_shares(num_clients, cohort_size, fed_avg, printed, pairs):
  for function, expected in (
    (bounds.sampling_share, fed_avg),
    (bounds.printed_pair_sampling_share, printed),
    (bounds.pair_sampling_share, pairs),
  ):
    np.testing.assert_allclose(
      function(num_clients, cohort_size), expected, rtol=2e-4
    )
