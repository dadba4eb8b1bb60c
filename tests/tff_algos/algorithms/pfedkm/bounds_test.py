"""pFedKM's bounds in numbers, against the formulas worked out by hand."""

import numpy as np
import pytest

from tff_algos.algorithms.pfedkm import bounds

# alpha = 2 * 0.01 * 4 = 0.08.
_CONSTANTS = bounds.Constants(
  num_clients=10,
  num_clusters=3,
  num_local_steps=4,
  client_learning_rate=0.01,
  server_mixing=2.0,
  proximal_weight=5.0,
  smoothness=2.0,
  prox_error=0.1,
)
_MEASURED = bounds.Measured(
  mean_squared_gradient=1.0,
  model_bound=3.0,
  gradient_bound=2.0,
  settled_round=2,
  objective_gap=6.0,
)
# 8 * 9 * 2; 6 * 4 * 2; 192 * 10 * 16 * 25 * 0.01 * 4 / 16.
_C = (144.0, 48.0, 1920.0)


@pytest.mark.parametrize(
  ('num_local_steps', 'expected'), [(1, 0.0340), (10, 4.755e-4)]
)
def test_the_largest_learning_rate_of_the_proof(num_local_steps, expected):
  found = bounds.largest_learning_rate(1.0, num_local_steps)
  np.testing.assert_allclose(found, expected, rtol=1e-3)
  halved = bounds.largest_learning_rate(2.0, num_local_steps)
  np.testing.assert_allclose(halved, found / 2)


@pytest.mark.parametrize(('eta', 'times'), [(0.005, 158), (0.03, 946)])
def test_the_papers_experiments_lie_outside_the_proof(eta, times):
  """R = 10, and L_F no better than lambda = 15."""
  constants = _CONSTANTS._replace(
    num_local_steps=10, client_learning_rate=eta, smoothness=15.0
  )
  assert round(constants.learning_rate_excess) == times


def test_the_terms_of_the_bound():
  found = bounds.explicit_bound(_CONSTANTS, _MEASURED, 50)
  np.testing.assert_allclose(
    found,
    [
      4 * 6 / (0.08 * 50),
      _C[0] * 3 * 4 / (0.0064 * 50),
      _C[1] * 3 / 50,
      _C[2] * 0.0064 / 4,
      16 * 10 * 25 * 0.01,
    ],
  )
  np.testing.assert_allclose(found.total, sum(found[:5]))
  assert _CONSTANTS.floor == found.floor


def test_only_drift_and_floor_stay():
  soon, late = (
    bounds.explicit_bound(_CONSTANTS, _MEASURED, rounds)
    for rounds in (10, 1_000)
  )
  np.testing.assert_allclose(np.array(soon[:3]) / late[:3], 100)
  assert soon[3:] == late[3:]


def test_the_theorem():
  """alpha_0 = min(144 * 3 * 4 / 24, sqrt(3) * 2, 2 sqrt(4 / (432 * 4 * 16)));
  the last one. The step for T = 10^8: 2 (432 / 1920 / 10^8)^(1/4).
  """
  largest = 2 * np.sqrt(4 / (432 * 4 * 16))
  short = bounds.theorem(_CONSTANTS, _MEASURED, 50)
  np.testing.assert_allclose(short.step, largest)
  np.testing.assert_allclose(
    short.bound,
    3 * 144 * 3 * 4 / (2 * largest**2 * 50)
    + 5 * np.sqrt(144 * 1920 * 3) / (2 * np.sqrt(50))
    + 40,
  )
  long = bounds.theorem(_CONSTANTS, _MEASURED, 10**8)
  np.testing.assert_allclose(long.step, 2 * (432 / 1920 / 1e8) ** 0.25)
  np.testing.assert_allclose(long.bound, 40, rtol=0.01)


def test_exact_solves_leave_no_floor():
  exact = _CONSTANTS._replace(prox_error=0.0)
  found = bounds.theorem(exact, _MEASURED, 10**6)
  # alpha_0, the same for any number of rounds.
  assert found.step == bounds.theorem(exact, _MEASURED, 1).step
  np.testing.assert_allclose(
    found.bound * 10**6, 3 * 144 * 3 * 4 / (2 * found.step**2)
  )


def test_what_rounds_say():
  """Two rounds of two clusters in two dimensions; the second changes none."""
  models = np.array([[[0, 0], [0, 0]], [[3, 0], [0, 4]], [[1, 1], [1, 1]]])
  gradients = np.array([[[1, 1], [1, 1]], [[2, 0], [0, 0]], [[9, 0], [0, 0]]])
  assignments = np.array([[0, 1, 0], [0, 1, 1], [0, 1, 1]])
  objectives = np.array([[5.0, 3], [2, 2], [1, 2]])
  found = bounds.measure(models, gradients, assignments, objectives)
  assert found == (((4 + 4) / 2 / 2), 5.0, 9.0, 1, 2.5)
  late = bounds.measure(models, gradients, assignments[[0, 0, 1]], objectives)
  assert late.settled_round == 2
  never = bounds.measure(models, gradients, assignments[[0, 0, 0]], objectives)
  assert never.settled_round == 1
