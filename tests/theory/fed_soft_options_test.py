"""FedSoft's options: what must be equal whichever is chosen, and Theorem 5.

Ruan and Joe-Wong (2021). Populations are a few clients of linear regression.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.fed_soft import center_download, fed_soft
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.rounds import phase_types, plans
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import local_training
from tff_algos.training import dropouts, loop

_P = 3
_THETAS = np.array([[4.0, 0, 0], [-4, 0, 0], [0, 4, 1]])
_SIZES = (4, 0, 6, 5, 1, 9)
_MIXTURES = np.random.default_rng(0).dirichlet(np.ones(3), len(_SIZES))
_SOURCE = toys.linear_clients(_THETAS, _MIXTURES, _SIZES)
_SOLVER = local_training.LocalTrainingConfig(
  2, 3, optimizers.OptimizerConfig('adam', 0.1)
)


def _build(model=None, **options):
  options = {
    **{'num_clusters': 3, 'cohort_size_per_cluster': 2},
    **{'estimation_interval': 2, 'local_training': _SOLVER},
  } | options
  return fed_soft.build_fed_soft(
    model or toys.linear(_P), fed_soft.FedSoftConfig(**options)
  )


def _run(algorithm, runtime_class, num_rounds=3, source=_SOURCE):
  num_clients = source.population.num_clients
  with runtime_class(algorithm, num_clients) as runtime:
    return toys.run_rounds(algorithm, source, num_rounds, runtime=runtime)


def _assert_close(found, expected):
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('start', ['own', 'mixed_center'])
def test_one_model_trains_like_all_of_them(start):
  """The pull is computed by the same operations, at the server or here.

  Products of some processors differ in the last bit with the number of rows.
  """
  all_centers, mixed_center = (
    _run(_build(start=start, download=download), debug_runtime.DebugRuntime)
    for download in center_download.DOWNLOADS
  )
  tf.nest.map_structure(_assert_close, mixed_center[:2], all_centers[:2])


def test_one_model_costs_one_model_outside_estimation_rounds():
  """Down: P + 1 numbers a drawn client, or 0 if it holds the centres."""
  costs = {}
  for download in center_download.DOWNLOADS:
    algorithm = _build(download=download)
    server_state, _ = toys.initial_states(algorithm, _SOURCE.population)
    costs[download] = []
    for round_num in (1, 2):
      plan = algorithm.plan_round(
        server_state, _SOURCE.population, round_num, 0
      )
      call = next(plan)
      if call.phase == 'estimate_importance':
        assert call.cost.downlink_floats == 5 * 3 * _P
        call = plan.send(server_state)
      num_drawn = len(call.client_indices)
      costs[download].append(call.cost.downlink_floats / num_drawn)
  assert costs == {'all_centers': [0, 3 * _P], 'mixed_center': [0, _P + 1]}


def test_the_type_of_the_phase_shows_that_no_center_is_broadcast():
  types = {
    download: phase_types.check_algorithm(_build(download=download))['train']
    for download in center_download.DOWNLOADS
  }
  assert types['all_centers'].message == {'kernel': tf.TensorSpec([3, _P, 1])}
  mixed = types['mixed_center']
  assert mixed.message == ()
  assert mixed.clients.client_input.pull.center == {
    'kernel': tf.TensorSpec([_P, 1])
  }


def test_initial_local_models_may_be_independent_draws():
  population = _SOURCE.population
  _, common = toys.initial_states(_build(), population)
  _, own = toys.initial_states(
    _build(initial_local_models='independent'), population
  )
  kernels = [
    [tuple(state.personalized_weights['kernel'].ravel()) for state in states]
    for states in (common, own)
  ]
  assert [len(set(each)) for each in kernels] == [1, len(_SIZES)]


# Theorem 5: N = 8 clients with equally many examples, S = 3, fixed u.
_LAMBDA = 0.8
_EIGHT = toys.linear_clients(
  _THETAS, np.random.default_rng(1).dirichlet(np.ones(3), 8), [12] * 8
)
_FIXED = np.random.default_rng(2).dirichlet(np.ones(3), 8).astype(np.float32)


def _build_fixed(**options):
  return _build(
    **{
      'fixed_importance': tuple(map(tuple, _FIXED.tolist())),
      'selection': 'weighted_full',
      'proximal_weight': _LAMBDA,
      'loss_scale': 0.5,
      'local_training': local_training.LocalTrainingConfig(solver='exact'),
    }
    | options
  )


def _models(server_state, states):
  centers = server_state.cluster_models['kernel'][..., 0]
  local = [state.personalized_weights['kernel'][:, 0] for state in states]
  return np.array(local, np.float64), centers.astype(np.float64)


def _joint_objective(local, centers):
  """H of Theorem 5: the sum of all clients' proximal problems."""
  total = 0.0
  for k, weights in enumerate(local):
    x, y, _ = _EIGHT.examples(k)
    total += np.mean((x @ weights - y) ** 2) / 2
    gaps = ((weights - centers) ** 2).sum(axis=1)
    total += _LAMBDA / 2 * _FIXED[k] @ gaps
  return total


def _joint_minimum():
  """Solves for all w and c at once: grad H = 0 is a linear system."""
  num_clients, num_clusters = _FIXED.shape
  size = num_clients + num_clusters
  blocks = np.zeros((size, size, _P, _P))
  right = np.zeros((size, _P))
  for k, u in enumerate(_FIXED.astype(np.float64)):
    x, y, _ = (np.asarray(part, np.float64) for part in _EIGHT.examples(k))
    blocks[k, k] = x.T @ x / len(y) + _LAMBDA * u.sum() * np.eye(_P)
    right[k] = x.T @ y / len(y)
    for s in range(num_clusters):
      blocks[k, num_clients + s] = -_LAMBDA * u[s] * np.eye(_P)
      blocks[num_clients + s, k] = -u[s] * np.eye(_P)
      blocks[num_clients + s, num_clients + s] += u[s] * np.eye(_P)
  matrix = blocks.transpose(0, 2, 1, 3).reshape(size * _P, size * _P)
  solution = np.linalg.solve(matrix, right.ravel()).reshape(size, _P)
  return solution[:num_clients], solution[num_clients:]


def test_fixed_importance_and_exact_solutions_are_block_descent():
  """Theorem 5: H falls in every half-step, linearly to the joint minimum.

  In float32, so a half-step at the minimum may raise H by its rounding.
  """
  algorithm = _build_fixed()
  assert set(algorithm.phases) == {'train'}
  start = toys.initial_states(algorithm, _EIGHT.population)
  best_local, best_centers = _joint_minimum()
  local, centers = _models(*start)
  values, gaps = [_joint_objective(local, centers)], []
  for round_num in range(1, 21):
    *start, _ = toys.run_rounds(
      algorithm, _EIGHT, 1, start=start, first_round=round_num
    )
    new_local, new_centers = _models(*start)
    values.append(_joint_objective(new_local, centers))
    values.append(_joint_objective(new_local, new_centers))
    local, centers = new_local, new_centers
    gaps.append(np.abs(centers - best_centers).max())
  assert np.diff(values).max() < 1e-6 * values[-1]
  assert values[-1] < 0.9 * values[0]
  np.testing.assert_allclose(local, best_local, atol=5e-6)
  np.testing.assert_allclose(centers, best_centers, atol=5e-6)
  # The slowest direction is left alone after a few rounds.
  ratios = np.array(gaps[5:12]) / gaps[4:11]
  assert ratios.max() < 0.9
  np.testing.assert_allclose(ratios, ratios[-1], rtol=0.05)


def test_fixed_importance_is_kept_and_costs_no_estimation():
  algorithm = _build_fixed(download='mixed_center')
  server_state, _, outputs = _run(
    algorithm, debug_runtime.DebugRuntime, 3, _EIGHT
  )
  np.testing.assert_array_equal(server_state.importance_weights, _FIXED)
  assert len(outputs) == 3
  call = next(algorithm.plan_round(server_state, _EIGHT.population, 1, 0))
  assert call.cost == (8 * (_P + 1), 8 * _P, 8)


def test_fixed_importance_of_another_population_is_one_clear_error():
  algorithm = _build_fixed()
  text = '^fixed_importance must have a row for each of the 6 clients'
  for runtime_class in (
    toys.graph_runtime,
    debug_runtime.DebugRuntime,
  ):
    with pytest.raises(errors.ConfigError, match=text):
      _run(algorithm, runtime_class)


def _recording(algorithm, calls):
  """Returns the algorithm, whose plan also writes its calls down."""

  def plan_round(*arguments):
    def record(call):
      calls.append(call)
      return call

    yield from plans.map_calls(algorithm.plan_round(*arguments), record)

  return dataclasses.replace(algorithm, plan_round=plan_round)


def _check_means(before, after, client_states, call):
  """Compares centres with means of who came; returns how many had nobody."""
  slots = call.client_inputs.cluster_weights
  models = client_states.personalized_weights['kernel'][call.client_indices]
  num_kept = 0
  for s in range(3):
    center = before.cluster_models['kernel'][s]
    if slots[:, s].any():
      center = np.average(models, axis=0, weights=slots[:, s])
    else:
      num_kept += 1
    np.testing.assert_allclose(
      after.cluster_models['kernel'][s], center, rtol=1e-5, atol=1e-6
    )
  return num_kept


def test_clients_that_drop_out_are_in_no_mean_and_keep_what_they_had(tmp_path):
  """The mean is over the K' that came; K' = 0: the centre stays.

  Who drops out is worked out a second time; half do, so that some clusters
  lose everybody in 8 rounds of 2 slots.
  """
  calls = []
  algorithm = _recording(_build(), calls)
  population = _SOURCE.population
  store = loop.build_store(algorithm, population, 0, tmp_path, 'memory')
  everyone = np.arange(len(_SIZES))
  state = loop.initial_server_state(algorithm, len(_SIZES), 0)
  num_kept, num_stale = 0, 0
  with debug_runtime.DebugRuntime(algorithm, len(_SIZES)) as runtime:
    for round_num in range(1, 9):
      before, old = state, store.load(everyone)
      calls.clear()
      state, metrics = loop.run_round(
        algorithm, runtime, _SOURCE, store, before, round_num, 0, 0.5
      )
      store.commit()
      new = store.load(everyone)
      left = [
        dropouts.drop(call, population, round_num, 0, 0.5) for call in calls
      ]
      lost = sum(len(call.client_indices) for call in calls)
      lost -= sum(len(call.client_indices) for call in left)
      assert metrics['clients/dropped'] == lost
      if len(left) == 2:
        failed = np.setdiff1d(everyone, left[0].client_indices)
        num_stale += len(failed)
        np.testing.assert_array_equal(
          state.importance_weights[failed], before.importance_weights[failed]
        )
      trained = left[-1].client_indices
      idle = np.setdiff1d(everyone, trained)
      tf.nest.map_structure(
        lambda leaf, stale: np.testing.assert_array_equal(
          leaf[idle],  # noqa: B023
          stale[idle],  # noqa: B023
        ),
        new,
        old,
      )
      num_kept += _check_means(before, state, new, left[-1])
  assert num_kept
  assert num_stale
