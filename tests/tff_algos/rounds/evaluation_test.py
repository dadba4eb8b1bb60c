"""Tests of evaluation as phases, against NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.numerics import statistics
from tff_algos.rounds import evaluation, phase_types
from tff_algos.runtimes import debug_runtime

_SIZES = [6, 0, 3, 1]
_INDICES = np.array([2, 0, 1, 3], np.int32)


@pytest.fixture(scope='module', name='case')
def _case():
  """Returns (algorithm, server state, client states, source)."""
  source = toys.linear_clients(
    np.array([[2.0, 0], [0, -2]]), np.full((4, 2), 0.5), _SIZES
  )
  algorithm = fed_soft.build_fed_soft(
    toys.linear(2), fed_soft.FedSoftConfig(num_clusters=2)
  )
  server_state, states = toys.initial_states(algorithm, source.population)
  importance = np.array([[0.2, 0.8], [1, 0], [0.5, 0.5], [0, 1]], np.float32)
  server_state = server_state._replace(importance_weights=importance)
  states = [
    fed_soft.ClientState(
      {'kernel': np.full((2, 1), i, np.float32)}, np.int32(i % 3)
    )
    for i in range(len(states))
  ]
  return algorithm, server_state, states, source


def _evaluate(case, phase, client_inputs):
  algorithm, server_state, states, source = case
  runtime = debug_runtime.DebugRuntime(algorithm, len(states))
  call = algorithm_lib.PhaseCall(
    phase.name, _INDICES, client_inputs, algorithm_lib.Cost()
  )
  before = [state._replace() for state in states]
  output = toys.run_call(
    runtime, phase, server_state, states, call, (1, 0, source)
  )
  tf.nest.map_structure(
    np.testing.assert_array_equal, output.server_state, server_state
  )
  tf.nest.map_structure(np.testing.assert_array_equal, states, before)
  return output


def _mean_squared_errors(case, kernels_of):
  """Rows by ascending client index; NaN for a client without examples."""
  rows = []
  for i in range(len(_SIZES)):
    examples = case[3].examples(i)
    errors = examples.x @ kernels_of(i) - examples.y[:, np.newaxis]
    count = np.where(len(errors), len(errors), np.nan)
    rows.append((errors**2).sum(axis=0) / count)
  return np.array(rows)


def test_every_cluster_model_is_scored_on_every_client(case):
  phase = evaluation.build_cluster_evaluation(case[0])
  output = _evaluate(case, phase, ())
  kernels = case[1].cluster_models['kernel'][:, :, 0].T
  expected = _mean_squared_errors(case, lambda i: kernels)
  for name in ('loss', 'score'):
    stat = output.server_metrics[name]
    np.testing.assert_allclose(
      statistics.value_of(stat), expected, rtol=1e-4, equal_nan=True
    )
    np.testing.assert_array_equal(stat.weight, np.transpose([_SIZES] * 2))


def test_every_client_is_scored_with_its_own_model(case):
  """A client that never trained is served by the best centre."""
  phase = evaluation.build_personalized_evaluation(case[0])
  output = _evaluate(case, phase, _INDICES)

  def kernels_of(i):
    if i % 3 == 0:
      return case[1].cluster_models['kernel'][1]
    return case[2][i].personalized_weights['kernel']

  expected = _mean_squared_errors(case, kernels_of)[:, 0]
  loss = statistics.value_of(output.server_metrics['loss'])
  np.testing.assert_allclose(loss, expected, rtol=1e-4, equal_nan=True)
  np.testing.assert_array_equal(
    output.server_metrics['membership'], case[1].importance_weights
  )


def test_local_scores_are_those_of_local_models(case):
  """Here of what clients keep, even where the best centre serves them."""
  algorithm = dataclasses.replace(
    case[0],
    local_weights=lambda server_state, client_state, client_index: (
      client_state.personalized_weights
    ),
  )
  found = _evaluate(
    (algorithm, *case[1:]),
    evaluation.build_personalized_evaluation(algorithm),
    _INDICES,
  ).server_metrics
  expected = _mean_squared_errors(
    case, lambda i: case[2][i].personalized_weights['kernel']
  )[:, 0]
  local, served = (
    statistics.value_of(found[name]) for name in ('local_score', 'score')
  )
  np.testing.assert_allclose(local, expected, rtol=1e-4, equal_nan=True)
  assert local[0] != served[0]


def test_a_broken_cluster_model_leaves_the_others_their_scores(case):
  algorithm, server_state, *rest = case
  sound = _evaluate(
    case, evaluation.build_cluster_evaluation(algorithm), ()
  ).server_metrics
  for value in (np.nan, np.inf):
    centers = {'kernel': server_state.cluster_models['kernel'].copy()}
    centers['kernel'][0] = value
    broken = server_state._replace(cluster_models=centers)
    found = _evaluate(
      (algorithm, broken, *rest),
      evaluation.build_cluster_evaluation(algorithm),
      (),
    ).server_metrics
    for name, stat in found.items():
      for leaf, expected in zip(stat, sound[name], strict=True):
        np.testing.assert_array_equal(leaf[:, 0], 0)
        np.testing.assert_array_equal(leaf[:, 1], expected[:, 1])


def test_a_client_keeps_its_cluster_if_its_own_model_overflows(case):
  algorithm, server_state, states, source = case
  algorithm = dataclasses.replace(
    algorithm,
    local_weights=lambda server_state, client_state, client_index: (
      client_state.personalized_weights
    ),
  )
  huge = {'kernel': np.full((2, 1), 1e30, np.float32)}
  states = [
    *states[:2],
    states[2]._replace(personalized_weights=huge),
    states[3],
  ]
  found = _evaluate(
    (algorithm, server_state, states, source),
    evaluation.build_personalized_evaluation(algorithm),
    _INDICES,
  ).server_metrics
  np.testing.assert_array_equal(
    found['membership'], server_state.importance_weights
  )
  for name in ('loss', 'score', 'local_loss', 'local_score'):
    assert found[name].weight.tolist() == [6, 0, 0, 1]


def test_a_newcomer_whose_model_overflows_counts_as_nothing(case):
  """Its outputs would be taken for the first class."""
  newcomers = algorithm_lib.Newcomers(
    fit=None,
    weights=lambda server_state, membership: {
      'kernel': membership[:, tf.newaxis]
    },
  )
  phase = evaluation.build_newcomer_evaluation(case[0], newcomers)
  memberships = np.ones([len(_SIZES), 2], np.float32)
  memberships[3] = np.inf
  output = _evaluate(case, phase, memberships)
  for name in ('loss', 'score'):
    weight = output.server_metrics[name].weight
    assert weight.tolist() == [*_SIZES[:3], 0]


def test_a_client_with_nan_counts_as_nothing(case):
  algorithm, server_state, states, source = case
  source = toys.linear_clients(
    np.array([[2.0, 0], [0, -2]]), np.full((4, 2), 0.5), _SIZES
  )
  source.examples(2).x[1, 1] = np.nan
  phase = evaluation.build_cluster_evaluation(algorithm)
  output = _evaluate((algorithm, server_state, states, source), phase, ())
  weights = output.server_metrics['loss'].weight
  assert weights.T.tolist() == [[6, 0, 0, 1]] * 2


def test_phases_fit_the_algorithm(case):
  types = phase_types.state_specs(case[0], 4)
  data = phase_types.data_spec(case[0].cluster_model)
  clusters = evaluation.build_cluster_evaluation(case[0])
  assert (
    phase_types.check_phase(clusters, *types, data).clients.client_state == ()
  )
  personalized = evaluation.build_personalized_evaluation(case[0])
  clients = phase_types.check_phase(personalized, *types, data).clients
  assert clients.client_input == tf.TensorSpec([], tf.int32)
