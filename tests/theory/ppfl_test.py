"""PPFL's theory on linear regressions (Di et al., arXiv:2310.14337, Section 5).

The library measures the objective and the stationarity itself.
"""

import numpy as np
import pytest

from tests.testing import ppfl_oracle, toys
from tests.testing import ppfl_problem as problem
from tff_algos.algorithms.ppfl import membership_descent, ppfl
from tff_algos.stages.client import local_training


@pytest.fixture(scope='module', name='alternating')
def _alternating():
  return problem.Run('alternating', 200)


@pytest.fixture(scope='module', name='blocks')
def _blocks():
  return problem.Run('random_block', 200)


def _assert_never_rises(objective):
  """Up to the rounding of float32."""
  assert (np.diff(objective) <= 1e-6 * objective[:-1] + 1e-9).all()


def test_measured_objective_and_stationarity_are_the_formulas(alternating):
  """Before round 2, after round 1."""
  theta, c = (
    np.asarray(one[0], np.float64)
    for one in (alternating.thetas, alternating.memberships)
  )
  found = alternating.measured[1]
  np.testing.assert_allclose(
    found['objective'],
    problem.objective(theta, c),
    rtol=1e-5,
  )
  slopes = [
    ppfl_oracle.gradients(x, y, theta, one)
    for (x, y), one in zip(problem.CLIENTS, c, strict=True)
  ]
  in_theta = sum(
    p * slope[0] for p, slope in zip(problem.SHARES, slopes, strict=True)
  )
  np.testing.assert_allclose(
    found['squared_gradient_norm'], np.sum(in_theta**2), rtol=1e-4
  )
  pull = problem.pull(c)
  in_memberships = 0
  for i, (_, slope) in enumerate(slopes):
    stepped = ppfl_oracle.mirror_step(
      c[i], problem.SHARES[i] * slope + pull[i], alternating.step, 0
    )
    in_memberships += np.abs((c[i] - stepped) / alternating.step).sum() ** 2
  np.testing.assert_allclose(
    found['squared_mapping_norm'], in_memberships, rtol=2e-2
  )
  np.testing.assert_allclose(
    found['squared_stationarity'],
    np.sum(in_theta**2) + in_memberships,
    rtol=1e-2,
  )


@pytest.mark.parametrize(
  'name', ['alternating', pytest.param('blocks', marks=pytest.mark.verify)]
)
def test_objective_never_rises(name, request):
  """Full gradients and theory steps: Lemmas 1 and 2."""
  objective = request.getfixturevalue(name).series('objective')
  _assert_never_rises(objective)
  assert objective[-1] < 0.9 * objective[0]


@pytest.mark.verify
def test_objective_never_rises_over_a_thousand_rounds_of_five_local_steps():
  """Of Algorithm 3; in float64, at the iterates of float32."""
  run = problem.Run('alternating', 1_000, 5, share=4.0, interval=0)
  values = [
    problem.objective(theta.astype(np.float64), c.astype(np.float64))
    for theta, c in zip(run.thetas, run.memberships, strict=True)
  ]
  _assert_never_rises(np.array(values))
  assert values[-1] < 0.5 * values[0]


@pytest.mark.verify
def test_blocks_are_drawn_by_their_chance_and_leave_each_other_alone(blocks):
  """Of 200 fair draws, 60 to 140 fall on one block but once in 10^8."""
  moved = np.array([names == ('loss',) for names in blocks.blocks])
  assert 60 < moved.sum() < 140
  for before, after, is_shared in zip(
    range(199), range(1, 200), moved[1:], strict=True
  ):
    same_theta = np.array_equal(blocks.thetas[before], blocks.thetas[after])
    same_c = np.array_equal(
      blocks.memberships[before], blocks.memberships[after]
    )
    assert (same_theta, same_c) == (not is_shared, bool(is_shared))


@pytest.mark.parametrize('num_rounds', [10, 50, 200])
def test_theorem_2_corrected_holds_and_the_printed_bound_does_not(
  alternating, num_rounds
):
  """4 gap (16 L_1 + L_2) / T against the printed 4 gap / ((16 L_1 + L_2) T)."""
  gap = alternating.measured[0]['objective']  # At least; F >= 0.
  mean = alternating.series('squared_stationarity')[:num_rounds].mean()
  assert mean <= problem.alternating_bound(gap, num_rounds, alternating.step)
  curvature = 16 * alternating.smoothness.weights
  curvature += alternating.smoothness.memberships
  assert mean > 4 * gap / (curvature * num_rounds)


@pytest.mark.verify
def test_theorem_1_holds(blocks):
  bound = problem.random_block_bound(
    blocks.smoothness, blocks.measured[0]['objective'], 200, blocks.step
  )
  assert blocks.series('squared_stationarity').mean() <= bound


@pytest.mark.parametrize(
  'num_local_steps', [pytest.param(1, marks=pytest.mark.verify), 5]
)
def test_local_steps_descend_by_lemma_1_and_drift_by_lemma_3(num_local_steps):
  """With the measured diversity, and memberships as the library left them."""
  run = problem.Run('alternating', 12, num_local_steps, share=4.0)
  _assert_never_rises(run.series('objective'))
  curvature, eta = run.smoothness.weights, run.step
  assert eta <= 0.5 / curvature
  for t in range(1, 11):
    theta, after, c = (
      np.asarray(one, np.float64)
      for one in (run.thetas[t - 1], run.thetas[t], run.memberships[t])
    )
    slopes, drifts, ends = [], [], []
    for (x, y), one in zip(problem.CLIENTS, c, strict=True):
      local, drift = theta, 0.0
      slopes.append(ppfl_oracle.gradients(x, y, theta, one)[0])
      for _ in range(num_local_steps):
        drift += np.sum((local - theta) ** 2)
        slope = ppfl_oracle.gradients(x, y, local, one)[0]
        local = local - eta / num_local_steps * slope
      drifts.append(drift)
      ends.append(local)
      limit = 16 * num_local_steps * eta**2 * np.sum(slopes[-1] ** 2)
      assert drift <= limit  # Lemma 3.
    np.testing.assert_allclose(after, np.mean(ends, axis=0), atol=1e-5)
    mean = np.mean(slopes, axis=0)
    diversity = np.mean([np.sum((slope - mean) ** 2) for slope in slopes])
    values = [
      problem.objective(one, c) for one in (theta, np.mean(ends, axis=0))
    ]
    product = eta * curvature
    limit = -eta / 2 * (1 - 2 * product - 64 * product**2) * np.sum(mean**2)
    limit += 32 * eta**3 * curvature**2 * diversity
    assert values[1] - values[0] <= limit + 1e-12  # Lemma 1.
    moved = np.sum((np.mean(ends, axis=0) - theta) ** 2)  # Lemma 4.
    drift = 2 * eta**2 * curvature**2 / num_local_steps * np.mean(drifts)
    assert moved <= drift + 2 * eta**2 * np.sum(mean**2)


@pytest.mark.verify
def test_planted_models_are_recovered():
  """What each client is served, theta c_i: c and theta by themselves are not
  identifiable. The noise leaves an error of half a per cent or so.
  """
  algorithm = ppfl.build_ppfl(
    toys.linear(problem.NUM_FEATURES),
    ppfl.PpflConfig(
      num_clusters=problem.NUM_CLUSTERS,
      mixing='parameters',
      membership=membership_descent.MembershipConfig(
        0.2, gradient_weight='none'
      ),
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        5, problem.NUM_EXAMPLES
      ),
    ),
  )
  with toys.graph_runtime(algorithm, problem.NUM_CLIENTS) as runtime:
    state, states, _ = toys.run_rounds(
      algorithm, problem.SOURCE, 200, runtime=runtime
    )
  c = np.stack([one.membership for one in states])
  found = c @ state.model_weights['canonical']['kernel'][..., 0]
  planted = problem.TRUE @ problem.THETA
  error = np.linalg.norm(found - planted) / np.linalg.norm(planted)
  assert error < 0.02
