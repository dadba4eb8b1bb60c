"""FedSoft descends linearly, and to a floor where examples are misassigned.

Ruan and Joe-Wong (2021), Theorem 4, in shape: its constants are not exact. The
toy F_s(w) = 1/2 |w - theta_s|^2 with pure clients, whose importance is wrong by
a share p.
"""

import dataclasses
import functools

import numpy as np
import pytest

from tests.testing import points, toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.runtimes.vectorized import vectorized_runtime

_WEIGHT = 1.0
_THETAS = np.array([[0.5, 0.0], [-0.5, 0.0]])
_SHIFT = 40.0


@pytest.fixture(scope='module', name='gaps')
def _gaps():
  """(p, Delta) -> `[22]`, F_0(c_0) - F_0^* after each round."""
  traced = _build(0.0)
  with vectorized_runtime.VectorizedRuntime(traced, 2) as runtime:
    yield functools.cache(functools.partial(_run, traced.phases, runtime))


def _build(misassigned):
  """Returns FedSoft whose clients give away a share p of their importance."""
  config = fed_soft.FedSoftConfig(
    selection='weighted_full',
    fixed_importance=(
      (1 - misassigned, misassigned),
      (misassigned, 1 - misassigned),
    ),
    proximal_weight=_WEIGHT,
    loss_scale=0.5,
    local_training=points.exact_solver(_WEIGHT, batch_size=8),
  )
  return fed_soft.build_fed_soft(points.model(2), config)


def _run(phases, runtime, misassigned, spread=1.0):
  """Runs 22 rounds from centres that are far off.

  Args:
    phases: Those that the runtime has traced.
    runtime: Of any share p, on which the plan alone depends.
    misassigned: p.
    spread: Delta, distance of the two sources.
  """
  thetas = spread * _THETAS
  source = points.mixtures(thetas, np.array([[3, 0], [0, 3]]))
  algorithm = dataclasses.replace(_build(misassigned), phases=phases)
  server_state, states = toys.initial_states(algorithm, source.population)
  # Off the line between the sources: what pulls there is the floor's part.
  models = {'point': (thetas + [0, _SHIFT]).astype(np.float32)}
  start = server_state._replace(cluster_models=models), states
  centers = []
  for round_num in range(1, 23):
    *start, _ = toys.run_rounds(
      algorithm, source, 1, start=start, first_round=round_num, runtime=runtime
    )
    centers.append(start[0].cluster_models['point'][0].astype(np.float64))
  return np.sum((np.array(centers) - thetas[0]) ** 2, axis=1) / 2


def _floor(misassigned):
  """Fixed point of x = m (1 + lambda m x) / (1 + lambda), m = 1 - 2 p."""
  m = 1 - 2 * misassigned
  kept = m / (1 + _WEIGHT * (1 - m**2))
  return ((1 - kept) / 2) ** 2 / 2


def test_with_perfect_importance_the_line_is_straight_to_the_end(gaps):
  """The gap shrinks by (lambda / (1 + lambda))^2 = 1/4 in every round."""
  slopes = np.diff(np.log(gaps(0.0)))
  np.testing.assert_allclose(slopes, np.log(0.25), rtol=1e-2)


@pytest.mark.parametrize('misassigned', [0.05, 0.1, 0.2])
def test_a_straight_line_then_a_plateau(gaps, misassigned):
  line = gaps(misassigned)
  slopes = np.diff(np.log(line[:4]))
  np.testing.assert_allclose(slopes, np.log(0.25), rtol=1e-2)
  np.testing.assert_allclose(line[-3:], _floor(misassigned), rtol=1e-3)
  assert line[-1] > 1e3 * gaps(0.0)[-1]


def test_the_plateau_grows_with_misassignment(gaps):
  plateaus = [gaps(p)[-1] for p in (0.0, 0.05, 0.1, 0.2)]
  assert (np.diff(plateaus) > 1e-4).all()


def test_the_plateau_grows_with_the_square_of_the_distance(gaps):
  """O(p Delta^2)."""
  for spread in (2.0, 4.0):
    ratio = gaps(0.1, spread)[-1] / gaps(0.1)[-1]
    np.testing.assert_allclose(ratio, spread**2, rtol=1e-3)
