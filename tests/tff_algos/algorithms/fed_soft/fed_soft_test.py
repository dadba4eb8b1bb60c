"""Tests of FedSoft: plan, costs, states and bad input.

`tests/theory` compares whole trajectories with an independent implementation
and with the theory of the paper.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.fed_soft import center_download, fed_soft
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.rounds import plans
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import local_training
from tff_algos.stages.server import robust_aggregation

_THETAS = np.array([[4.0, 0, 0], [-4, 0, 0]])
_SIZES = (4, 0, 6, 5, 1)
_SOURCE = toys.linear_clients(
  _THETAS, np.array([[1.0, 0], [1, 0], [0.2, 0.8], [0, 1], [0.5, 0.5]]), _SIZES
)
_POPULATION = _SOURCE.population
_NUM_PARAMETERS = 3
_SGD = local_training.LocalTrainingConfig(
  2, 3, optimizers.OptimizerConfig('sgd', 0.02)
)

# A model whose initial weights are constant.
_CONSTANT = dataclasses.replace(
  toys.linear(3), initialize=lambda seed: {'kernel': tf.zeros([3, 1])}
)


def _build(**options):
  options = {'cohort_size_per_cluster': 2, 'local_training': _SGD} | options
  return fed_soft.build_fed_soft(
    toys.linear(_NUM_PARAMETERS), fed_soft.FedSoftConfig(**options)
  )


def _state(importance):
  models = {'kernel': np.zeros((2, _NUM_PARAMETERS, 1), np.float32)}
  return fed_soft.ServerState(models, np.array(importance, np.float32))


def _plan(algorithm, round_num, importance, population=_POPULATION):
  """Returns the calls of a round, if its estimation finds `importance`."""
  state = _state(importance)
  plan = algorithm.plan_round(state, population, round_num, 0)
  return [*plans.Calls(plan, state)]


# Exactly two clients have a chance in each cluster, so the draws are known.
_APART = [[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]]
_TOGETHER = [[1, 0], [1, 0], [0, 0], [0, 1], [0.5, 0.5]]


def test_initial_centers_differ_and_local_models_are_one_common_draw():
  algorithm = _build(num_clusters=3)
  server_state, states = toys.initial_states(algorithm, _POPULATION)
  kernels = server_state.cluster_models['kernel']
  assert kernels.shape == (3, 3, 1)
  assert len({tuple(kernel.ravel()) for kernel in kernels}) == 3
  assert server_state.importance_weights.shape == (5, 3)
  assert (server_state.importance_weights == np.float32(1e-4)).all()
  for state in states:
    tf.nest.map_structure(np.testing.assert_array_equal, state, states[0])
    assert state.num_updates == 0


def test_estimation_asks_all_clients_with_examples_every_interval():
  algorithm = _build(estimation_interval=3)
  phases = [
    [call.phase for call in _plan(algorithm, round_num, _APART)]
    for round_num in range(1, 8)
  ]
  both, train = ['estimate_importance', 'train'], ['train']
  assert phases == [both, train, train, both, train, train, both]
  estimation = _plan(algorithm, 1, _APART)[0]
  assert estimation.client_indices.tolist() == [0, 2, 3, 4]
  assert estimation.client_indices.dtype == np.int32


def test_a_newcomer_of_a_continued_run_is_asked_between_estimations():
  algorithm = _build(estimation_interval=3)
  new = [1e-4, 1e-4]  # Client 1 has no examples.
  importance = [[1, 0], new, new, [0, 1], [1, 0]]
  estimation, training = _plan(algorithm, 2, importance)
  assert estimation.phase == 'estimate_importance'
  assert estimation.client_indices.tolist() == [2]
  assert estimation.cost == (2 * _NUM_PARAMETERS, 3, 0)
  # It holds the cluster models then.
  assert training.client_indices.tolist() == [0, 2, 3, 4]
  assert training.cost.downlink_floats == 3 * 2 * _NUM_PARAMETERS


def test_available_clients_are_asked_if_only_others_have_an_estimate():
  importance = [[1, 0]] * 2 + [[1e-4] * 2] * 3
  is_available = np.isin(np.arange(5), [2, 4])
  estimation, _ = _plan(
    _build(), 2, importance, _POPULATION._replace(is_available=is_available)
  )
  assert estimation.phase == 'estimate_importance'
  assert estimation.client_indices.tolist() == [2, 4]


def test_each_drawn_client_trains_once_and_serves_every_cluster_it_fills():
  call = _plan(_build(), 2, _TOGETHER)[0]
  assert call.client_indices.tolist() == [0, 3, 4]
  np.testing.assert_array_equal(
    call.client_inputs.cluster_weights, [[1, 0], [0, 1], [1, 1]]
  )
  np.testing.assert_array_equal(
    call.client_inputs.importance_weights, [[1, 0], [0, 1], [0.5, 0.5]]
  )
  assert call.client_inputs.cluster_weights.dtype == np.float32


def test_slots_with_replacement_may_fall_on_one_client():
  algorithm = _build(selection='with_replacement', cohort_size_per_cluster=50)
  call = _plan(algorithm, 2, _TOGETHER)[0]
  slots = call.client_inputs.cluster_weights
  assert slots.sum(axis=0).tolist() == [50, 50]
  assert slots.max() > 1
  assert 1 not in call.client_indices


def test_draws_depend_on_seed_and_round_alone():
  algorithm = _build(num_clusters=1, cohort_size_per_cluster=1)
  importance = np.ones((5, 1))

  def drawn(round_num, seed):
    plan = algorithm.plan_round(
      _state(importance), _POPULATION, round_num, seed
    )
    return next(plan).client_indices.tolist()

  assert drawn(2, 0) == drawn(2, 0)
  assert len({tuple(drawn(2, seed)) for seed in range(20)}) > 1
  assert len({tuple(drawn(2 * i, 0)) for i in range(1, 20)}) > 1


def test_costs_of_four_scripted_rounds_equal_the_closed_forms():
  """A = clients drawn, N' = clients with examples; S models of P numbers.

  Estimation: down N' S P, up N' (S + 1); training: down A S P unless the
  models were sent for the estimation, up A P, and A local problems.
  """
  algorithm = _build(estimation_interval=2)
  num_available, S, P = 4, 2, _NUM_PARAMETERS
  expected = [
    [(num_available * S * P, num_available * (S + 1), 0), (0, 4 * P, 4)],
    [(3 * S * P, 3 * P, 3)],
    [(num_available * S * P, num_available * (S + 1), 0), (0, 3 * P, 3)],
    [(4 * S * P, 4 * P, 4)],
  ]
  script = [_APART, _TOGETHER, _TOGETHER, _APART]
  costs = [
    [call.cost for call in _plan(algorithm, round_num, importance)]
    for round_num, importance in enumerate(script, start=1)
  ]
  assert costs == expected
  totals = np.sum([cost for calls in costs for cost in calls], axis=0)
  assert totals.tolist() == [90, 66, 14]


def _train(algorithm, source, server_state, states, indices, weights):
  """Runs the train phase with these cluster weights."""
  call = algorithm_lib.PhaseCall(
    'train',
    np.array(indices, np.int32),
    center_download.TrainInput(
      np.full((len(indices), 2), 0.5, np.float32),
      np.array(weights, np.float32),
    ),
    algorithm_lib.Cost(),
  )
  runtime = debug_runtime.DebugRuntime(algorithm, len(states))
  return toys.run_call(
    runtime,
    algorithm.phases['train'],
    server_state,
    states,
    call,
    (1, 0, source),
  )


def _kernels(states, indices):
  return np.stack([states[i].personalized_weights['kernel'] for i in indices])


def test_centers_are_the_plain_means_of_their_slots():
  algorithm = _build()
  server_state, states = toys.initial_states(algorithm, _POPULATION)
  slots = np.array([[1, 0], [2, 1], [0, 3]])
  output = _train(algorithm, _SOURCE, server_state, states, [0, 2, 3], slots)
  models = _kernels(states, [0, 2, 3])
  np.testing.assert_allclose(
    output.server_state.cluster_models['kernel'],
    np.einsum('ns,nij->sij', slots / slots.sum(axis=0), models),
    rtol=1e-5,
  )
  assert int(output.server_metrics['num_empty_clusters']) == 0


def test_the_weight_of_absent_clients_stays_at_the_cluster_model():
  """Weights of Eq. 27, of which a half and three quarters are absent."""
  algorithm = _build()
  server_state, states = toys.initial_states(algorithm, _POPULATION)
  weights = np.array([[0.125, 0.25], [0.375, 0]])
  output = _train(algorithm, _SOURCE, server_state, states, [0, 2], weights)
  old = server_state.cluster_models['kernel']
  expected = np.einsum('ns,nij->sij', weights, _kernels(states, [0, 2]))
  expected += old * np.reshape([0.5, 0.75], [2, 1, 1])
  np.testing.assert_allclose(
    output.server_state.cluster_models['kernel'], expected, rtol=1e-5
  )


def test_a_cluster_that_nobody_serves_keeps_its_model():
  algorithm = _build()
  server_state, states = toys.initial_states(algorithm, _POPULATION)
  output = _train(
    algorithm, _SOURCE, server_state, states, [0, 2], [[1, 0], [1, 0]]
  )
  before = server_state.cluster_models['kernel']
  after = output.server_state.cluster_models['kernel']
  np.testing.assert_array_equal(after[1], before[1])
  assert (after[0] != before[0]).all()
  assert int(output.server_metrics['num_empty_clusters']) == 1


@pytest.mark.parametrize('round_num', [1, 3])
def test_a_client_with_nan_is_refused_by_an_estimation(round_num):
  """It keeps the importance that it had; if none, it gets the smoother."""
  algorithm = _build(importance_smoother=0.125)
  start = toys.run_rounds(algorithm, _SOURCE, round_num - 1)[:2]
  source = toys.linear_clients(_THETAS, np.full((5, 2), 0.5), _SIZES)
  source.examples(3).x[0, 0] = np.nan
  server_state, _, outputs = toys.run_rounds(
    algorithm, source, 1, start=start, first_round=round_num
  )
  assert outputs[0].num_invalid == 1
  loss = outputs[0].client_metrics['assigned_loss']
  assert np.isfinite(loss.total)
  assert float(loss.weight) == sum(_SIZES) - _SIZES[3]
  before, after = start[0].importance_weights, server_state.importance_weights
  np.testing.assert_array_equal(after[3], before[3])
  assert (after[3] >= 0.125).all()
  assert (after[[0, 2, 4]] >= 0.125).all()
  assert (after[[0, 2, 4]].sum(axis=1) >= 1).all()


def test_order_of_clients_changes_nothing():
  algorithm = _build()
  centers = []
  for order in ([0, 1, 2], [2, 0, 1]):
    server_state, states = toys.initial_states(algorithm, _POPULATION)
    indices = np.array([0, 2, 3])[order]
    slots = np.array([[1, 0], [2, 1], [0, 3]])[order]
    output = _train(algorithm, _SOURCE, server_state, states, indices, slots)
    centers.append(output.server_state.cluster_models['kernel'])
  np.testing.assert_allclose(centers[0], centers[1], rtol=1e-6)


def test_a_client_that_was_never_drawn_is_served_by_its_best_center():
  algorithm = _build()
  importance = np.array([[0.2, 0.8], [0.8, 0.2], [0.5, 0.5]], np.float32)
  models = {'kernel': np.array([[[1.0]], [[2.0]]], np.float32)}
  server_state = fed_soft.ServerState(models, importance)
  own = {'kernel': np.array([[7.0]], np.float32)}

  def served(index, num_updates):
    weights = algorithm.personalized_weights(
      server_state, fed_soft.ClientState(own, num_updates), tf.constant(index)
    )
    return weights['kernel'].numpy().item()

  assert [served(i, 0) for i in range(3)] == [2, 1, 1]
  assert [served(i, 1) for i in range(3)] == [7, 7, 7]
  np.testing.assert_array_equal(
    algorithm.membership(server_state, None, tf.constant(1)), importance[1]
  )
  assert algorithm.cluster_weights(server_state) is models


def test_more_clients_than_have_examples_cannot_be_drawn():
  algorithm = _build(cohort_size_per_cluster=5)
  text = (
    'cohort_size_per_cluster is 5, but only 4 of the 5 clients have training '
    'examples and are available; lower cohort_size_per_cluster'
  )
  with pytest.raises(errors.ConfigError, match=text):
    _plan(algorithm, 1, _APART)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_clusters': 0}, 'num_clusters must be an integer >= 1, got 0'),
    (
      {'cohort_size_per_cluster': 0},
      'cohort_size_per_cluster must be an integ',
    ),
    ({'estimation_interval': 0}, 'estimation_interval must be an integer >= 1'),
    ({'importance_smoother': 1.0}, 'importance_smoother must be .* < 1, got 1'),
    ({'proximal_weight': -1.0}, 'proximal_weight must be .* >= 0, got -1.0'),
    ({'selection': 'all'}, "selection must be one of 'without_replacement', "),
    ({'start': 'zero'}, "start must be one of 'own', 'mixed_center', 'best_ce"),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0, got 0.0'),
    (
      {'importance_smoother': 0.0},
      'importance_smoother must be > 0 for selection without replacement',
    ),
    ({'download': 'one'}, "download must be one of 'all_centers', 'mixed_cen"),
    ({'initial_local_models': 'x'}, "must be one of 'common', 'independent'"),
    (
      {'download': 'mixed_center', 'start': 'best_center'},
      "start 'best_center' needs a cluster model, but download 'mixed_center'",
    ),
    (
      {'fixed_importance': ((1.0, 0.0),)},
      "fixed_importance is for selection 'weighted_full' .* got 'without_repl",
    ),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    fed_soft.FedSoftConfig(**options)


def test_models_that_stay_equal_are_refused():
  """Without cohorts; fixed importance separates equal models, too."""
  for options in (
    {},
    {'num_clusters': 1, 'selection': 'weighted_full'},
    {'fixed_importance': ((1.0, 0.0),), 'selection': 'weighted_full'},
  ):
    fed_soft.build_fed_soft(_CONSTANT, fed_soft.FedSoftConfig(**options))
  with pytest.raises(errors.ConfigError, match='start equal.*and stay so: set'):
    fed_soft.build_fed_soft(
      _CONSTANT, fed_soft.FedSoftConfig(selection='weighted_full')
    )


def test_models_that_stay_equal_without_cohorts_are_refused_in_round_1():
  """Later rounds continue from cluster models that may differ."""
  config = fed_soft.FedSoftConfig(cohort_size_per_cluster=4)
  algorithm = fed_soft.build_fed_soft(_CONSTANT, config)
  _plan(algorithm, 2, _TOGETHER)
  text = 'start equal.*and stay so: lower cohort_size_per_cluster, or name'
  with pytest.raises(errors.ConfigError, match=text):
    _plan(algorithm, 1, _TOGETHER)
  few = dataclasses.replace(config, cohort_size_per_cluster=3)
  _plan(fed_soft.build_fed_soft(_CONSTANT, few), 1, [[1, 1]] * 5)


@pytest.mark.parametrize(
  'rule',
  [
    {'rule': 'median'},
    {'rule': 'krum'},
    {'rule': 'trimmed_mean'},
    {'rule': 'bulyan'},
    {'mixes_nearest_neighbors': True},
  ],
)
@pytest.mark.parametrize(
  'cohort', [{'selection': 'weighted_full'}, {'cohort_size_per_cluster': 4}]
)
def test_all_clients_in_each_cluster_need_weights(rule, cohort):
  aggregation = robust_aggregation.AggregationConfig(**rule)
  algorithm = _build(aggregation=aggregation, **cohort)
  text = 'all 4 are in each cluster, so that all cluster models would be equal'
  with pytest.raises(errors.ConfigError, match=text):
    _plan(algorithm, 2, [[0.9, 0.1]] * 5)
  # Clients that a cluster does not have make it another one.
  _plan(algorithm, 2, _APART)


def test_a_round_without_available_clients_has_no_equal_clusters():
  aggregation = robust_aggregation.AggregationConfig(rule='median')
  algorithm = _build(aggregation=aggregation, selection='with_replacement')
  unavailable = _POPULATION._replace(is_available=np.zeros(5, bool))
  *_, call = _plan(algorithm, 2, [[0.9, 0.1]] * 5, unavailable)
  assert not len(call.client_indices)


@pytest.mark.parametrize(
  'rule',
  [
    {'rule': 'geometric_median'},
    {'mixes_nearest_neighbors': True, 'num_byzantine': 1},
  ],
)
def test_a_rule_with_weights_parts_clusters_of_all_clients(rule):
  aggregation = robust_aggregation.AggregationConfig(**rule)
  algorithm = _build(aggregation=aggregation, selection='weighted_full')
  server_state, _, _ = toys.run_rounds(algorithm, _SOURCE, 2)
  first, second = server_state.cluster_models['kernel']
  assert np.abs(first - second).max() > 0.1


@pytest.mark.parametrize('selection', ['with_replacement', 'weighted_full'])
def test_without_a_smoother_a_cluster_may_fit_nobody(selection):
  """All importances of cluster 1 are 0: it draws by examples, and lives."""
  algorithm = _build(importance_smoother=0.0, selection=selection)
  server_state, _, outputs = toys.run_rounds(algorithm, _SOURCE, 2)
  assert all(output.num_invalid == 0 for output in outputs)
  assert np.isfinite(server_state.cluster_models['kernel']).all()
  call = _plan(algorithm, 2, [[1, 0]] * 5)[0]
  slots = call.client_inputs.cluster_weights
  assert slots.sum(axis=0).min() > 0.99
