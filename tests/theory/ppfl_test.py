"""PPFL's theory on linear regressions (Di et al., arXiv:2310.14337, Section 5).

Nine clients, three canonical models, planted memberships (0.9, 0.05, 0.05) turned
by client. All gradients are full, so that the only noise is the diversity of the
clients. The library measures the objective and the stationarity itself.
"""

import numpy as np
import pytest

from tests.testing import ppfl_oracle, toys
from tff_algos.algorithms import ppfl
from tff_algos.data import schema
from tff_algos.metrics import block_descent_bounds as bounds
from tff_algos.numerics import optimizers
from tff_algos.runtimes import vectorized_runtime
from tff_algos.stages import affinity, local_training, membership_descent

_NUM_CLIENTS, _K, _D, _N = 9, 3, 6, 40
_LAMBDA = 1e-3
_GENERATOR = np.random.default_rng(0)
_THETA = _GENERATOR.normal(size=(_K, _D))
_TRUE = np.stack(
  [np.roll([0.9, 0.05, 0.05], i % _K) for i in range(_NUM_CLIENTS)]
)
_X = _GENERATOR.normal(size=(_NUM_CLIENTS, _N, _D))
_NOISE = 0.05 * _GENERATOR.normal(size=(_NUM_CLIENTS, _N))
_Y = np.einsum('ind,id->in', _X, _TRUE @ _THETA) + _NOISE
_SOURCE = toys.ToySource(
  [
    schema.Examples(x.astype('f'), y.astype('f'), np.zeros(_N, np.int32))
    for x, y in zip(_X, _Y, strict=True)
  ]
)
_CLIENTS = [
  (one.x.astype(float), one.y.astype(float))
  for one in map(_SOURCE.examples, range(_NUM_CLIENTS))
]
_P = np.full(_NUM_CLIENTS, 1 / _NUM_CLIENTS)
_ONES = np.ones((_NUM_CLIENTS, _NUM_CLIENTS))


def _smoothness(theta):
  """L_1 and L_2, the latter at the largest theta of a run, `[T, K, P]`."""
  grams = [x.T @ x / _N for x, _ in _CLIENTS]
  largest = max(
    np.abs(one @ gram @ one.T).max() for one in theta for gram in grams
  )
  return bounds.Smoothness(
    max(np.linalg.eigvalsh(gram)[-1] for gram in grams),
    largest / _NUM_CLIENTS + 2 * _LAMBDA * _NUM_CLIENTS,
  )


def _build(schedule, step, num_local_steps, **options):
  """Both blocks with the base step eta."""
  return ppfl.build_ppfl(
    toys.linear(_D),
    ppfl.PpflConfig(
      num_clusters=_K,
      schedule=schedule,
      mixing='parameters',
      membership=membership_descent.MembershipConfig(step),
      laplacian=affinity.LaplacianConfig(_LAMBDA, 'uniform'),
      stationarity_interval=1,
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        num_local_steps,
        _N,
        optimizers.OptimizerConfig('sgd', step / num_local_steps),
      ),
      **options,
    ),
  )


class _Run:
  """Rounds of the library: what it measured, and where it was."""

  def __init__(self, schedule, num_rounds, num_local_steps=1, share=1.0):
    start = _build(schedule, 1.0, 1)
    state = toys.initial_states(start, _SOURCE.population)[0]
    theta = state.model_weights['canonical']['kernel'][..., 0]
    # Nothing grows beyond the planted models.
    self.smoothness = _smoothness([theta, 1.2 * _THETA])
    self.step = share * bounds.random_block_step(
      self.smoothness, num_local_steps
    )
    if schedule == 'alternating' and num_local_steps == 1:
      self.step = share / (16 * self.smoothness.weights)
    self.algorithm = _build(schedule, self.step, num_local_steps)
    self.thetas, self.memberships, self.measured, self.blocks = [], [], [], []
    states = None
    with vectorized_runtime.VectorizedRuntime(
      self.algorithm, _NUM_CLIENTS
    ) as runtime:
      for round_num in range(1, num_rounds + 1):
        states, outputs = self._round(runtime, states, round_num)
        self.measured.append(
          {k: float(v) for k, v in outputs[0].server_metrics.items()}
        )
        self.blocks.append(tuple(outputs[1].client_metrics))

  def _round(self, runtime, states, round_num):
    server_state, client_states, outputs = toys.run_rounds(
      self.algorithm, runtime, _SOURCE, 1, 0, states, round_num
    )
    self.thetas.append(
      server_state.model_weights['canonical']['kernel'][..., 0]
    )
    self.memberships.append(server_state.membership)
    return (server_state, client_states), outputs

  def series(self, name):
    return np.array([one[name] for one in self.measured])


@pytest.fixture(scope='module', name='alternating')
def _alternating():
  return _Run('alternating', 200)


@pytest.fixture(scope='module', name='blocks')
def _blocks():
  return _Run('random_block', 200)


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
    ppfl_oracle.objective(_CLIENTS, theta, c, _P, _ONES, _LAMBDA),
    rtol=1e-5,
  )
  slopes = [
    ppfl_oracle.gradients(x, y, theta, one)
    for (x, y), one in zip(_CLIENTS, c, strict=True)
  ]
  in_theta = sum(p * slope[0] for p, slope in zip(_P, slopes, strict=True))
  np.testing.assert_allclose(
    found['squared_gradient_norm'], np.sum(in_theta**2), rtol=1e-4
  )
  pull = 2 * _LAMBDA * (_NUM_CLIENTS * np.eye(_NUM_CLIENTS) - _ONES) @ c
  in_memberships = 0
  for i, (_, slope) in enumerate(slopes):
    stepped = ppfl_oracle.mirror_step(
      c[i], _P[i] * slope + pull[i], alternating.step, 0
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


@pytest.mark.parametrize('name', ['alternating', 'blocks'])
def test_objective_never_rises(name, request):
  """Full gradients and theory steps: Lemmas 1 and 2."""
  objective = request.getfixturevalue(name).series('objective')
  _assert_never_rises(objective)
  assert objective[-1] < 0.9 * objective[0]


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
  bound = bounds.alternating_bound(
    alternating.smoothness, bounds.Noise(), gap, num_rounds, alternating.step
  )
  assert mean <= bound
  curvature = 16 * alternating.smoothness.weights
  curvature += alternating.smoothness.memberships
  assert mean > 4 * gap / (curvature * num_rounds)


def test_theorem_1_holds(blocks):
  """Over the iterates at the start of the rounds, by their chances."""
  steps = np.full(200, blocks.step)
  bound = bounds.random_block_bound(
    blocks.smoothness,
    bounds.Noise(),
    blocks.measured[0]['objective'],
    _NUM_CLIENTS,
    steps,
    0.5,
  )
  weights = bounds.output_weights(blocks.smoothness, steps, 0.5)
  np.testing.assert_allclose(weights, weights[0])  # Uniform for one step size.
  found = np.average(blocks.series('squared_stationarity'), weights=weights)
  assert found <= bound


def test_the_output_of_the_random_rule_is_a_shorter_training(blocks):
  """The iterate after t' rounds, reproduced by a training of t' rounds."""
  weights = bounds.output_weights(
    blocks.smoothness, np.full(20, blocks.step), 0.5
  )
  stop = bounds.draw_output_round(weights, seed=4)
  assert 0 < stop < 20
  with vectorized_runtime.VectorizedRuntime(
    blocks.algorithm, _NUM_CLIENTS
  ) as runtime:
    state, _, _ = toys.run_rounds(blocks.algorithm, runtime, _SOURCE, stop)
  np.testing.assert_array_equal(
    state.model_weights['canonical']['kernel'][..., 0], blocks.thetas[stop - 1]
  )
  np.testing.assert_array_equal(state.membership, blocks.memberships[stop - 1])


def test_five_local_steps_descend_by_lemma_1_and_drift_by_lemma_3():
  """With the measured diversity, and memberships as the library left them."""
  num_local_steps = 5
  run = _Run('alternating', 12, num_local_steps, share=4.0)
  _assert_never_rises(run.series('objective'))
  curvature, eta = run.smoothness.weights, run.step
  assert eta <= 0.5 / curvature
  for t in range(1, 11):
    theta, after, c = (
      np.asarray(one, np.float64)
      for one in (run.thetas[t - 1], run.thetas[t], run.memberships[t])
    )
    slopes, drifts, ends = [], [], []
    for (x, y), one in zip(_CLIENTS, c, strict=True):
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
      ppfl_oracle.objective(_CLIENTS, one, c, _P, _ONES, _LAMBDA)
      for one in (theta, np.mean(ends, axis=0))
    ]
    product = eta * curvature
    limit = -eta / 2 * (1 - 2 * product - 64 * product**2) * np.sum(mean**2)
    limit += 32 * eta**3 * curvature**2 * diversity
    assert values[1] - values[0] <= limit + 1e-12  # Lemma 1.
    moved = np.sum((np.mean(ends, axis=0) - theta) ** 2)  # Lemma 4.
    drift = 2 * eta**2 * curvature**2 / num_local_steps * np.mean(drifts)
    assert moved <= drift + 2 * eta**2 * np.sum(mean**2)


def test_planted_models_are_recovered():
  """What each client is served, theta c_i: c and theta by themselves are not
  identifiable. The noise leaves an error of half a per cent or so.
  """
  algorithm = ppfl.build_ppfl(
    toys.linear(_D),
    ppfl.PpflConfig(
      num_clusters=_K,
      mixing='parameters',
      membership=membership_descent.MembershipConfig(
        0.2, gradient_weight='none'
      ),
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(5, _N),
    ),
  )
  with vectorized_runtime.VectorizedRuntime(algorithm, _NUM_CLIENTS) as runtime:
    state, states, _ = toys.run_rounds(algorithm, runtime, _SOURCE, 200)
  c = np.stack([one.membership for one in states])
  found = c @ state.model_weights['canonical']['kernel'][..., 0]
  planted = _TRUE @ _THETA
  error = np.linalg.norm(found - planted) / np.linalg.norm(planted)
  assert error < 0.02
