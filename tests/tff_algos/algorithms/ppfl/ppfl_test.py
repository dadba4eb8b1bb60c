"""Tests of PPFL's plan, states, costs and options."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, toys
from tff_algos.algorithms import registry
from tff_algos.algorithms.ppfl import affinity, membership_descent, ppfl
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.rounds import lr_schedule, plans
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.vectorized import vectorized_runtime
from tff_algos.stages.client import local_training

_SOURCE = contract.build_source()
_POPULATION = _SOURCE.population
# mlp 16-5-3: 85 weights below, 18 in the last layer.
_P, _HEAD = 103, 18
_TRAINING = local_training.LocalTrainingConfig(1, 4)


def _config(**options):
  return ppfl.PpflConfig(**{'local_training': _TRAINING, **options})


def _build(**options):
  return ppfl.build_ppfl(toys.mlp(), _config(**options))


def _calls(algorithm, num_rounds):
  """Returns the calls of each round, as far as they need no results."""
  state, _ = toys.initial_states(algorithm, _POPULATION)
  rounds = []
  for round_num in range(1, num_rounds + 1):
    plan = algorithm.plan_round(state, _POPULATION, round_num, 0)
    rounds.append([*plans.Calls(plan, state)])
    if not isinstance(state.is_counted, tuple):
      state = state._replace(is_counted=np.ones(len(contract.SIZES), bool))
  return rounds


_LAPLACIAN = affinity.LaplacianConfig(0.1)


@pytest.mark.parametrize('schedule', ['random_block', 'shared_first'])
def test_other_schedules_move_memberships_of_clients_with_examples(schedule):
  algorithm = _build(
    schedule=schedule,
    laplacian=_LAPLACIAN,
    canonical=('last_layer',),
    mixing='probabilities',
    membership=membership_descent.MembershipConfig(0.5, batch_size=4),
  )
  # All runtimes run one of them; the contract runs the other.
  run = {
    'random_block': contract.run_on_all_runtimes,
    'shared_first': toys.run_rounds,
  }[schedule]
  table = run(algorithm, _SOURCE, 3)[0].membership
  assert np.abs(table - 0.5).max() > 1e-4
  np.testing.assert_array_equal(table[1], [0.5, 0.5])


def test_server_hears_of_memberships_only_for_the_penalty():
  state, states, outputs = toys.run_rounds(_build(), _SOURCE, 2)
  assert state.membership == state.affinity_features == ()
  assert [len(output.server_metrics) for output in outputs] == [0, 0]
  moved = [one.membership for one in states]
  state, states, _ = toys.run_rounds(
    _build(laplacian=affinity.LaplacianConfig(1e-9)), _SOURCE, 2
  )
  np.testing.assert_allclose(state.membership, moved, rtol=1e-4)
  np.testing.assert_array_equal(
    state.membership, [one.membership for one in states]
  )


def test_absent_clients_keep_their_memberships_at_both_ends():
  algorithm = _build(
    cohort_size=2, laplacian=affinity.LaplacianConfig(0.1, 'uniform')
  )
  (calls,) = _calls(algorithm, 1)
  state, states, _ = toys.run_rounds(algorithm, _SOURCE, 1)
  for index in range(len(contract.SIZES)):
    for c in (state.membership[index], states[index].membership):
      moved = np.abs(c - 0.5).max() > 1e-6
      assert moved == (index in calls[0].client_indices)


def test_labels_are_counted_once_by_all_that_have_examples():
  algorithm = _build(laplacian=_LAPLACIAN, cohort_size=2)
  first, joint = _calls(algorithm, 1)[0]
  assert [first.phase, joint.phase] == ['count_labels', 'joint']
  assert first.client_indices.tolist() == [0, 2, 3, 4]
  assert first.cost == (0, 4 * 3, 0)
  state, _, _ = toys.run_rounds(algorithm, _SOURCE, 1)
  assert state.is_counted.tolist() == [True, False, True, True, True]
  source = contract.build_source()
  plan = algorithm.plan_round(state, source.population, 2, 0)
  assert next(plan).phase == 'joint'


def test_clients_that_were_not_counted_are_asked_alone():
  algorithm = _build(laplacian=_LAPLACIAN, cohort_size=2)
  state, _, _ = toys.run_rounds(algorithm, _SOURCE, 1)
  state = state._replace(is_counted=np.array([1, 0, 1, 0, 1], bool))
  population = contract.build_source().population
  call = next(algorithm.plan_round(state, population, 7, 0))
  assert (call.phase, call.client_indices.tolist()) == ('count_labels', [3])
  state, _, _ = toys.run_rounds(_build(laplacian=_LAPLACIAN), _SOURCE, 2)
  norms = np.linalg.norm(state.affinity_features, axis=1)
  np.testing.assert_allclose(norms, [1, 0, 1, 1, 1], rtol=1e-6)


def test_costs_are_the_papers():
  """Algorithm 3: P + K each way; with lambda = 0 just P. Algorithm 1: P or K.
  Of the release, theta goes down once a round.
  """
  k = 4
  whole, heads = k * _P, _P + (k - 1) * _HEAD
  four = {'num_clusters': k}
  (call,) = _calls(_build(**four), 1)[0]
  assert call.cost == (4 * whole, 4 * whole, 4)
  (call,) = _calls(_build(**four, canonical=('last_layer',)), 1)[0]
  assert call.cost == (4 * heads, 4 * heads, 4)
  (_, call) = _calls(_build(**four, laplacian=_LAPLACIAN), 1)[0]
  assert call.cost == (4 * (whole + k), 4 * (whole + k), 4)
  blocks = {
    call.phase: call.cost
    for calls in _calls(_build(**four, schedule='random_block'), 9)
    for call in calls
  }
  assert blocks == {
    'shared': (4 * whole, 4 * whole, 4),
    'membership': (4 * k, 4 * k, 0),
  }
  first, second = _calls(
    _build(**four, schedule='shared_first', laplacian=_LAPLACIAN), 2
  )
  assert [call.cost for call in first[1:]] == [
    (4 * whole, 4 * whole, 4),
    (4 * (whole + k), 4 * k, 0),
  ]
  assert [call.cost for call in second] == [
    (0, 4 * whole, 4),
    (4 * (whole + k), 4 * k, 0),
  ]


@pytest.mark.parametrize('schedule', ['alternating', 'shared_first'])
def test_what_travels_is_what_the_cost_says(schedule):
  """Everything that a phase uploads or tells, but p_i, counts and rates."""
  algorithm = _build(schedule=schedule, laplacian=_LAPLACIAN, num_clusters=3)
  state, states = tf.nest.map_structure(
    tf.constant, toys.initial_states(algorithm, _POPULATION)
  )
  for call in _calls(algorithm, 1)[0]:
    phase = algorithm.phases[call.phase]
    data = algorithm_lib.ClientData(
      tf.zeros([2, 4, 4, 1]), tf.zeros([2], tf.int32), tf.ones([2])
    )
    told = tf.nest.map_structure(
      lambda leaf: tf.constant(leaf[0]), call.client_inputs
    )
    output = phase.client_work(
      phase.make_message(state), told, states[0], data, tf.constant([1, 2])
    )
    up = sum(
      np.size(leaf)
      for field in phase.aggregation
      for leaf in tf.nest.flatten(output.result[field])
    )
    down = sum(
      np.size(leaf)
      for leaf in tf.nest.flatten(phase.make_message(state))
      + [told[name] for name in told if name == 'penalty_gradient']
    )
    assert call.cost.uplink_floats == 4 * up
    if call.phase != 'count_labels':
      expected = 3 * _P + 3 * (call.phase != 'shared')
      assert down == expected == call.cost.downlink_floats / 4


def test_frozen_weights_let_memberships_move_alone():
  """Without further downloads, from the second such round on."""
  algorithm = _build(num_joint_rounds=1)
  after_one = toys.run_rounds(algorithm, _SOURCE, 1)
  state, states, outputs = toys.run_rounds(algorithm, _SOURCE, 3)
  np.testing.assert_equal(state, after_one[0])
  moved = [
    np.abs(one.membership - other.membership).max()
    for one, other in zip(states, after_one[1], strict=True)
  ]
  assert [change > 0 for change in moved] == [True, False, True, True, True]
  names = [sorted(output.client_metrics) for output in outputs]
  assert names == [['loss', 'membership_loss'], *[['membership_loss']] * 2]
  calls = [calls[0] for calls in _calls(algorithm, 3)]
  assert [call.phase for call in calls] == ['joint', 'membership', 'membership']
  assert calls[1].cost == (4 * 2 * _P, 0, 0)
  assert calls[2].cost == (0, 0, 0)


def test_both_rates_fall():
  section = {'name': 'ppfl', **config_lib.to_dict(_config())}
  algorithm = registry.build_algorithm(
    registry.parse_config(section),
    toys.mlp(),
    schedule=lr_schedule.LrScheduleConfig((1,), 0.5),
  )
  names = [calls[0].phase for calls in _calls(algorithm, 2)]
  assert names == ['joint', 'joint@2']
  found = toys.run_rounds(algorithm, _SOURCE, 2)
  halves = _build(
    membership=membership_descent.MembershipConfig(0.05),
    local_training=local_training.LocalTrainingConfig(
      1, 4, ppfl.local_training_lib.optimizers.OptimizerConfig('sgd', 0.05)
    ),
  )
  start = toys.run_rounds(_build(), _SOURCE, 1)[:2]
  expected = toys.run_rounds(halves, _SOURCE, 1, start=start, first_round=2)
  np.testing.assert_equal(found[:2], expected[:2])


def test_p_i_weighs_the_membership_gradient_unless_told_not_to():
  for weighting, shares in (
    ('examples', np.array([7, 1, 12, 4]) / 24),
    ('uniform', np.full(4, 1 / 4)),
  ):
    (call,) = _calls(_build(weighting=weighting), 1)[0]
    np.testing.assert_allclose(
      call.client_inputs['client_weight'], shares, rtol=1e-6
    )
  none = membership_descent.MembershipConfig(gradient_weight='none')
  (call,) = _calls(_build(membership=none), 1)[0]
  assert not call.client_inputs


def test_newcomers_prefer_the_canonical_model_that_fits_them():
  algorithm = _build(num_clusters=3, mixing='probabilities')
  state, _, _ = toys.run_rounds(algorithm, _SOURCE, 2)
  x = tf.constant(_SOURCE.examples(3).x)
  model = algorithm.cluster_model
  stacked = algorithm.cluster_weights(state)
  outputs = model.apply({name: leaf[1] for name, leaf in stacked.items()}, x)
  data = algorithm_lib.ClientData(
    x, tf.argmax(outputs, axis=1, output_type=tf.int32), tf.ones([len(x)])
  )
  c = algorithm.newcomers.fit(state, data, tf.constant([1, 2])).numpy()
  np.testing.assert_allclose(c.sum(), 1, rtol=1e-6)
  assert c.argmax() == 1
  weights = algorithm.newcomers.weights(state, tf.constant(c))
  served = algorithm.personalized_model
  losses = served.example_losses(served.apply(weights, x), data.y)
  equal = algorithm.newcomers.weights(state, tf.fill([3], 1 / 3))
  before = served.example_losses(served.apply(equal, x), data.y)
  assert tf.reduce_mean(losses) < tf.reduce_mean(before)


@pytest.mark.parametrize('canonical', ['head', 'all'])
def test_words_are_modelled(canonical):
  """A round on a transformer moves canonical weights and memberships."""
  source = toys.token_clients([5, 2])
  algorithm = _build_for_words(canonical)
  start = toys.initial_states(algorithm, source.population)
  state, _, _ = toys.run_rounds(algorithm, source, 1, start=start)
  heads = (
    one.model_weights['canonical']['head/kernel'] for one in (state, start[0])
  )
  assert np.abs(np.subtract(*heads)).max() > 1e-4
  assert state.affinity_features.any()
  assert np.abs(state.membership - 0.5).max() > 1e-7


@pytest.mark.verify
def test_words_are_modelled_in_one_graph():
  source = toys.token_clients([5, 2])
  algorithm = _build_for_words('head')
  start = toys.initial_states(algorithm, source.population)
  with vectorized_runtime.VectorizedRuntime(algorithm, 2) as vectorized:
    found, expected = (
      toys.run_rounds(algorithm, source, 1, start=start, runtime=runtime)
      for runtime in (vectorized, debug_runtime.DebugRuntime(algorithm, 2))
    )
  contract.assert_close(found, expected)


def _build_for_words(canonical):
  return ppfl.build_ppfl(
    toys.transformer(),
    ppfl.PpflConfig(
      canonical=(canonical,),
      laplacian=_LAPLACIAN,
      local_training=_TRAINING,
    ),
  )


def test_a_population_without_examples_is_refused():
  nobody = algorithm_lib.Population(('a', 'b'), np.zeros(2, np.int64))
  plan = _build().plan_round(None, nobody, 1, 0)
  with pytest.raises(
    errors.ConfigError, match='no client has training examples'
  ):
    next(plan)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_clusters': 0}, 'num_clusters must be an integer >= 1, got 0'),
    ({'schedule': 'both'}, "schedule must be one of 'alternating'"),
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'mixing': 'logits'}, "mixing must be one of 'outputs', 'parameters'"),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'shared_prob': 1.5}, 'shared_prob must be a number from 0 to 1'),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0, got 0.0'),
    ({'num_joint_rounds': -1}, 'num_joint_rounds must be an integer >= 0'),
    (
      {
        'mixing': 'probabilities',
        'membership': membership_descent.MembershipConfig(floor=0.0),
      },
      'membership.floor 0 lets them become 0 in float32; set it to 1e-6',
    ),
    (
      {
        'mixing': 'probabilities',
        'membership': membership_descent.MembershipConfig(floor=1e-50),
      },
      'membership.floor 1e-50 lets them become 0',
    ),
    (
      {
        'schedule': 'random_block',
        'membership': membership_descent.MembershipConfig(num_epochs=2),
      },
      "'random_block' takes one step on memberships a round, but",
    ),
    (
      {
        'schedule': 'random_block',
        'local_training': local_training.LocalTrainingConfig(
          keeps_optimizer_state=True
        ),
      },
      "keeps_optimizer_state is True, but in the schedule 'random_block'",
    ),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    ppfl.PpflConfig(**options)
