"""Tests of CMFL, against NumPy and in its reductions."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, toys
from tff_algos.algorithms import registry
from tff_algos.algorithms.cmfl import cmfl, committee, committee_roles
from tff_algos.algorithms.cmfl.consensus import round_votes
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, seeds
from tff_algos.numerics import optimizers, trees
from tff_algos.rounds import aggregation
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import local_training
from tff_algos.training import simulation

_NUM_CLIENTS = 12
_THETAS = np.array([[2.0, -1, 0.5], [1, 1, 1]])
# Client 4 has nothing to train on.
_SIZES = [5, 9, 3, 12, 0, 7, 4, 8, 6, 10, 5, 11]
_SOURCE = toys.linear_clients(
  _THETAS, np.full((_NUM_CLIENTS, 2), 0.5), _SIZES, seed=2
)
# Ten of the eleven that have examples are active: C = 4, n = 6, m = 2.
_SHARES = {'active_rate': 10 / 11, 'committee_rate': 0.4}
_RATE = 0.05
_NUM_PARAMETERS = 3
_NUM_ROUNDS = 5


_CONSENSUS = {
  field.name for field in dataclasses.fields(round_votes.ConsensusConfig)
}


def _build(
  upload='update',
  server_learning_rate=1.0,
  run_seed=None,
  rate_offset=0.0,
  **options,
):
  votes = {k: v for k, v in options.items() if k in _CONSENSUS}
  shares = {k: v for k, v in options.items() if k not in _CONSENSUS}
  return cmfl.build_cmfl(
    toys.linear(3),
    cmfl.CmflConfig(
      upload=upload,
      server_learning_rate=server_learning_rate,
      rate_offset=rate_offset,
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        1, 32, optimizers.OptimizerConfig('sgd', _RATE)
      ),
      committee=committee.CommitteeConfig(**(_SHARES | shares)),
      consensus=round_votes.ConsensusConfig(**votes),
    ),
    run_seed,
  )


class _Recorded(NamedTuple):
  """One round.

  Attributes:
    before: What held.
    call: Of the training.
    after: What held after the vote.
    trained: Output of the training.
    voted: Output of phase `adopt`.
    state: The server state at the end.
  """

  before: cmfl.Proposal
  call: algorithm_lib.PhaseCall
  after: cmfl.Proposal
  trained: cohort_lib.PhaseOutput
  voted: cohort_lib.PhaseOutput
  state: cmfl.ServerState


def _rounds(algorithm, num_rounds=_NUM_ROUNDS, source=_SOURCE):
  """Yields what happened, round by round."""
  runtime = debug_runtime.DebugRuntime(algorithm, _NUM_CLIENTS)
  state, states = toys.initial_states(algorithm, source.population)
  for round_num in range(1, num_rounds + 1):
    plan = algorithm.plan_round(state, source.population, round_num, 0)
    before, calls, outputs = state.agreed, [next(plan)], []
    for phase in ('train', 'adopt'):
      assert calls[-1].phase == phase
      outputs.append(
        toys.run_call(
          runtime,
          algorithm.phases[phase],
          state,
          states,
          calls[-1],
          (round_num, 0, source),
        )
      )
      state = outputs[-1].server_state
      if phase == 'train':
        calls.append(plan.send(state))
    yield _Recorded(before, calls[0], state.agreed, *outputs, state)


def _members(call):
  return call.client_indices[call.client_inputs.is_member]


def _kernel(agreed):
  return agreed.model_weights['kernel'][:, 0].astype(np.float64)


def _gradient(k, w):
  examples = _SOURCE.examples(k)
  x, y = examples.x.astype(np.float64), examples.y.astype(np.float64)
  return x.T @ (x @ w - y) / len(y)


def _oracle(w, members, training, selection, server_rate, upload):
  """Algorithm 3, score by score: weights, who is averaged, who is elected."""
  updates = {k: _RATE * _gradient(k, w) for k in [*members, *training]}
  if upload == 'last_gradient':  # On all examples again, after the step.
    updates = {k: _gradient(k, w - step) for k, step in updates.items()}
  score = {
    k: len(members)
    / sum(((updates[k] - updates[c]) ** 2).sum() for c in members)
    for k in training
  }
  ranking = sorted(training, key=lambda k: (-score[k], k))
  selected = {
    'most_similar': ranking[:2],
    'least_similar': ranking[-2:],
    'all': ranking,
  }[selection]
  examples = np.array([_SIZES[k] for k in selected])
  mean = np.average([updates[k] for k in selected], axis=0, weights=examples)
  first = (len(training) - len(members)) // 2
  elected = ranking[first : first + len(members)]
  return w - server_rate * mean, sorted(selected), sorted(elected)


@pytest.mark.parametrize(
  ('selection', 'upload'),
  [
    # Each selection and each upload in both tiers.
    ('most_similar', 'last_gradient'),
    ('least_similar', 'update'),
    ('all', 'model'),
    *(
      pytest.param(selection, upload, marks=pytest.mark.verify)
      for selection, uploads in (
        ('most_similar', ('update', 'model')),
        ('least_similar', ('model', 'last_gradient')),
        ('all', ('update', 'last_gradient')),
      )
      for upload in uploads
    ),
  ],
)
def test_rounds_agree_with_numpy(selection, upload):
  """Scores, means and elections of Eq. 5 to 8; float32, so to 1e-5."""
  rate = 0.7 * (_RATE if upload == 'last_gradient' else 1)
  algorithm = _build(upload, rate, selection=selection)
  counts = np.zeros(_NUM_CLIENTS, int)
  for before, call, after, _, _, state in _rounds(algorithm):
    members = _members(call).tolist()
    training = call.client_indices[~call.client_inputs.is_member].tolist()
    w, selected, elected = _oracle(
      _kernel(before), members, training, selection, rate, upload
    )
    np.testing.assert_allclose(_kernel(after), w, rtol=1e-5, atol=1e-6)
    assert np.flatnonzero(after.is_member).tolist() == elected
    assert np.flatnonzero(after.is_selected).tolist() == selected
    counts[selected] += 1
    np.testing.assert_array_equal(state.num_selections, counts)


def test_roles_of_every_round():
  """Disjoint, of constant size, the next committee from the training clients."""
  elected = None
  for _, call, after, trained, _, _ in _rounds(_build(), 8):
    members = set(_members(call).tolist())
    training = set(call.client_indices[~call.client_inputs.is_member].tolist())
    assert elected is None or members == elected
    assert (len(members), len(training)) == (4, 6)
    assert not members & training
    assert 4 not in members | training
    elected = set(np.flatnonzero(after.is_member).tolist())
    assert elected <= training
    assert trained.server_metrics['num_selected'] == 2


def test_the_first_committee_is_drawn_from_everybody_with_examples():
  """400 seeds: each of the 11 is a member 145 times, within 5 deviations."""
  algorithm = _build()
  state, _ = toys.initial_states(algorithm, _SOURCE.population)
  counts = np.zeros(_NUM_CLIENTS)
  for seed in range(400):
    call = next(algorithm.plan_round(state, _SOURCE.population, 1, seed))
    counts[_members(call)] += 1
  assert counts[4] == 0
  share = 4 / 11
  deviation = np.sqrt(400 * share * (1 - share))
  assert (abs(np.delete(counts, 4) - 400 * share) < 5 * deviation).all()


def test_models_and_updates_are_the_same_algorithm_for_honest_clients():
  one, other = (
    list(_rounds(_build(upload)))[-1].state for upload in ('update', 'model')
  )
  np.testing.assert_allclose(
    _kernel(one.agreed), _kernel(other.agreed), rtol=1e-5
  )
  np.testing.assert_array_equal(one.num_selections, other.num_selections)


@pytest.mark.parametrize('selection', ['all', 'most_similar', 'least_similar'])
def test_everybody_averaged_is_gradient_descent_on_the_training_clients(
  selection,
):
  """FedSGD: one full batch each; float32, so to 1e-5.

  With alpha = 100 % of the training clients all strategies average everybody.
  """
  algorithm = _build(selection=selection, aggregation_rate=1.0)
  for before, call, after, *_ in _rounds(algorithm):
    w = _kernel(before)
    training = call.client_indices[~call.client_inputs.is_member]
    weights = np.array([_SIZES[k] for k in training])
    mean = np.average([_gradient(k, w) for k in training], 0, weights)
    np.testing.assert_allclose(
      _kernel(after), w - _RATE * mean, rtol=1e-5, atol=1e-6
    )


def test_a_rate_that_falls_is_that_of_the_theorem():
  """With gamma = 3, rounds 1, 2, 3 go 1, 3/4 and 3/5 of the mean's way."""
  rates = (1, 3 / 4, 3 / 5)
  for rate, one in zip(
    rates, _rounds(_build(selection='all', rate_offset=3.0), 3), strict=True
  ):
    w, training = _kernel(one.before), one.call.client_indices
    training = training[~one.call.client_inputs.is_member]
    mean = np.average(
      [_gradient(k, w) for k in training], 0, [_SIZES[k] for k in training]
    )
    np.testing.assert_allclose(
      _kernel(one.after), w - rate * _RATE * mean, rtol=1e-5, atol=1e-6
    )


def test_random_selection_differs_by_round_and_repeats_by_seed():
  algorithm = _build(selection='random')
  counts = [
    [one.after.is_selected.astype(int) for one in _rounds(algorithm, 4)]
    for _ in range(2)
  ]
  np.testing.assert_array_equal(counts[0], counts[1])
  assert (np.sum(counts[0], axis=1) == 2).all()
  assert len({tuple(one) for one in counts[0]}) > 1


def test_cost_of_a_round():
  """Uploads go to every member, with the number of examples."""
  call = next(_rounds(_build())).call
  assert call.cost.downlink_floats == 10 * _NUM_PARAMETERS
  assert call.cost.uplink_floats == 6 * 4 * (_NUM_PARAMETERS + 1) + 4 * 3 * 6
  assert call.cost.local_solves == 10


def test_a_committee_that_is_lost_elects_nobody_and_changes_nothing():
  """All of its uploads are NaN; the next round draws another one."""
  algorithm = _build()
  state, _ = toys.initial_states(algorithm, _SOURCE.population)
  call = next(algorithm.plan_round(state, _SOURCE.population, 1, 0))
  members = _members(call)
  broken = [_SOURCE.examples(k) for k in range(_NUM_CLIENTS)]
  for k in members:
    broken[k] = broken[k]._replace(x=np.full_like(broken[k].x, np.nan))
  source = toys.ToySource(broken)
  lost = next(_rounds(algorithm, 1, source))
  assert lost.trained.num_invalid == len(members)
  np.testing.assert_array_equal(_kernel(lost.after), _kernel(lost.before))
  assert not lost.after.is_member.any()
  assert not lost.state.num_selections.any()
  again = next(algorithm.plan_round(lost.state, source.population, 2, 0))
  assert again.client_inputs.is_member.sum() == len(members)


def test_honest_members_agree_at_once():
  """Two votes of 4: 3 * 3 messages each, three delays of 10 ms."""
  for one in _rounds(_build(), 2):
    outcome = one.voted.server_metrics
    assert outcome['is_accepted'] == 1
    assert outcome['num_views'] == 2
    assert outcome['num_messages'] == 18
    assert outcome['num_bytes'] > 0
    np.testing.assert_allclose(outcome['seconds'], 0.06, rtol=1e-6)


def test_without_agreement_model_and_committee_stay():
  """All members are silent, so the bound on views ends the vote."""
  algorithm = _build(malicious_fraction=1.0, behaviour='silent', max_views=2)
  first, second = _rounds(algorithm, 2)
  assert first.voted.server_metrics['is_accepted'] == 0
  np.testing.assert_array_equal(_kernel(first.after), _kernel(first.before))
  np.testing.assert_array_equal(first.after.is_member, first.before.is_member)
  assert not second.state.num_selections.any()


def test_a_first_committee_stays_until_it_agrees(caplog):
  """Its members are silent for ever, and one warning says so."""
  algorithm = _build(malicious_fraction=1.0, behaviour='silent', max_views=1)
  with caplog.at_level('WARNING', logger='absl'):
    first, second, third = (one.call for one in _rounds(algorithm, 3))
  for call in (second, third):
    np.testing.assert_array_equal(_members(call), _members(first))
    assert (call.client_indices != first.client_indices).any()
  (warning,) = caplog.messages
  assert 'Round 1: the committee of 4 did not agree' in warning
  assert '0 of its members are honest and 4 votes are needed' in warning


def test_roles_are_shares_of_who_has_examples():
  """Of 12 clients 6 have examples and all of these are active: C = 2, n = 4."""
  source = toys.linear_clients(
    _THETAS, np.full((_NUM_CLIENTS, 2), 0.5), [3] * 6 + [0] * 6, seed=2
  )
  algorithm = _build(active_rate=1.0, committee_rate=1 / 3)
  state, _ = toys.initial_states(algorithm, source.population)
  call = next(algorithm.plan_round(state, source.population, 1, 0))
  assert call.client_indices.tolist() == [0, 1, 2, 3, 4, 5]
  assert len(_members(call)) == 2
  assert (call.client_inputs.committee_size == 2).all()
  assert (call.client_inputs.num_selected == 2).all()


def test_who_is_malicious_is_of_the_run_and_of_no_restart():
  """8 members of 12 clients of whom 3 are silent agree if 6 are honest, whatever
  the seed of a restart.
  """
  config = round_votes.ConsensusConfig(
    malicious_fraction=0.25, behaviour='silent'
  )
  ids, members = _SOURCE.population.client_ids, np.arange(8)
  nobody = np.zeros(_NUM_CLIENTS, bool)
  computed = round_votes.Round(1, nobody, nobody, {'w': np.zeros(1)})
  found = set()
  for run_seed in range(8):
    malicious = round_votes.malicious_clients(ids, config, run_seed)
    agrees = sum(ids[i] not in malicious for i in members) >= 6
    found.add(agrees)
    for seed in range(3):
      outcome = round_votes.vote(members, computed, ids, config, seed, run_seed)
      assert outcome.is_accepted == agrees
  assert found == {True, False}


def test_the_seed_of_a_run_reaches_the_vote():
  """The same plans vote by other malicious members with another run's seed."""
  source, options = _SOURCE, {'malicious_fraction': 0.5, 'behaviour': 'silent'}
  accepted = []
  for run_seed in range(6):
    algorithm = _build(run_seed=run_seed, committee_rate=0.25, **options)
    (only,) = _rounds(algorithm, 1, source)
    config = round_votes.ConsensusConfig(**options)
    ids = source.population.client_ids
    malicious = round_votes.malicious_clients(ids, config, run_seed)
    members = [ids[i] for i in _members(only.call)]
    accepted.append(bool(only.voted.server_metrics['is_accepted']))
    assert accepted[-1] == (not malicious & {*members})
  assert len(set(accepted)) == 2


def test_malicious_members_of_a_simulation_are_those_of_its_seed():
  """The registry passes no other seed; as in the test before this."""
  options = {'malicious_fraction': 0.25, 'behaviour': 'silent'}
  section = registry.parse_config(
    {
      'name': 'cmfl',
      'committee': _SHARES | {'committee_rate': 0.25},
      'consensus': options,
    }
  )
  algorithm = registry.build_algorithm(section, toys.linear(3))
  config = round_votes.ConsensusConfig(**options)
  ids = _SOURCE.population.client_ids
  runtime = debug_runtime.DebugRuntime(algorithm, len(ids))
  accepted = []
  for seed in range(6):
    train, adopt = simulation.Simulation(
      algorithm, _SOURCE, runtime, seed
    ).run_round()
    malicious = round_votes.malicious_clients(ids, config, seed)
    members = {ids[i] for i in _members(train.call)}
    accepted.append(bool(adopt.output.server_metrics['is_accepted']))
    assert accepted[-1] == (not malicious & members)
  assert len(set(accepted)) == 2


def test_agreement_that_is_assumed_changes_no_result():
  simulated, assumed = (
    list(_rounds(_build(protocol=protocol), 3))[-1]
    for protocol in ('simulated', 'assumed')
  )
  np.testing.assert_array_equal(
    _kernel(simulated.after), _kernel(assumed.after)
  )
  assert assumed.voted.server_metrics['num_messages'] == 0


def test_one_client_is_too_few():
  population = toys.linear_clients(_THETAS, [[1.0, 0.0]], [3]).population
  algorithm = _build()
  state = tf.nest.map_structure(
    np.asarray, algorithm.init_server_state(seeds.derive_seed(0, 'init'), 2)
  )
  with pytest.raises(errors.ConfigError, match='at least 2'):
    next(algorithm.plan_round(state, population, 1, 0))


def _proposal(value, member, selected):
  return cmfl.Proposal(
    {'kernel': tf.fill([2], value)},
    tf.range(3) == member,
    tf.range(3) == selected,
  )


def _adopt(is_accepted):
  """What comes of a state in which client 0 was averaged once."""
  phase = _build().phases['adopt']
  told = dict.fromkeys(phase.client_input, tf.constant(3.0))
  told['is_accepted'] = tf.constant(float(is_accepted))
  output = phase.client_work((), told, (), None, None)
  outcome = aggregation.Collected(
    trees.repeat(output.result['outcome'], 43),
    tf.range(43),
    tf.fill([43], True),
  )
  state = cmfl.ServerState(
    agreed=_proposal(1.0, 0, 1),
    proposed=_proposal(2.0, 2, 0),
    num_selections=tf.constant([1, 0, 0]),
    num_in_vain=tf.constant(2),
    selection_seed=tf.constant([0, 0]),
  )
  return phase.server_update(state, {'outcome': outcome})


def test_agreement_puts_the_proposal_in_force():
  state, metrics = _adopt(True)
  np.testing.assert_array_equal(state.agreed.model_weights['kernel'], [2, 2])
  np.testing.assert_array_equal(state.agreed.is_member, [False, False, True])
  np.testing.assert_array_equal(state.num_selections, [2, 0, 0])
  assert state.num_in_vain == 0
  assert metrics['num_views'] == 3


def test_a_proposal_is_adopted_once():
  """A second vote, without training between, counts and changes nothing."""
  for is_accepted in (True, False):
    state, _ = _adopt(is_accepted)
    np.testing.assert_array_equal(
      state.proposed.model_weights['kernel'],
      state.agreed.model_weights['kernel'],
    )
    np.testing.assert_array_equal(
      state.proposed.is_member, state.agreed.is_member
    )
    assert not state.proposed.is_selected.numpy().any()


def test_without_agreement_all_stays():
  state, metrics = _adopt(False)
  np.testing.assert_array_equal(state.agreed.model_weights['kernel'], [1, 1])
  np.testing.assert_array_equal(state.agreed.is_member, [True, False, False])
  np.testing.assert_array_equal(state.num_selections, [1, 0, 0])
  assert state.num_in_vain == 3
  assert metrics['is_accepted'] == 0


# Zeros stand for what was refused: of training client 0.
_UPLOADS = np.array([[0, 0], [9, 9], [1, 0], [2, 0], [9, 9], [3, 6]], 'f')
_IS_MEMBER = np.array([False, True, False, False, True, False])
_IS_VALID = np.arange(6) > 0


def test_a_lost_training_client_is_neither_averaged_nor_elected():
  """Clients 2, 3 and 5, of 1, 2 and 1 examples, are left: mean (2, 1.5)."""
  config = cmfl.CmflConfig(committee=committee.CommitteeConfig(selection='all'))
  algorithm = cmfl.build_cmfl(points.model(2), config)
  state = algorithm.init_server_state(tf.constant([1, 2]), 6)
  told = tf.constant(_IS_VALID, tf.int32)
  roles = committee_roles.Role(
    tf.constant(_IS_MEMBER), 3 * told, 4 * told, tf.cast(told, tf.float32)
  )

  def collect(values):
    return aggregation.Collected(values, tf.range(6), tf.constant(_IS_VALID))

  after, metrics = algorithm.phases['train'].server_update(
    state,
    {
      'upload': collect({'point': tf.constant(_UPLOADS)}),
      'num_examples': collect(tf.constant([0.0, 4, 1, 2, 5, 1])),
      'role': collect(roles),
    },
  )
  proposed, left = after.proposed, [2, 3, 5]
  np.testing.assert_array_equal(np.flatnonzero(proposed.is_selected), left)
  np.testing.assert_array_equal(np.flatnonzero(proposed.is_member), left)
  np.testing.assert_allclose(
    state.agreed.model_weights['point'] - proposed.model_weights['point'],
    [2, 1.5],
    rtol=1e-5,
  )
  assert metrics['num_training'] == 3


@pytest.mark.parametrize('upload', cmfl.UPLOADS)
def test_a_model_is_falsified_less_the_global_one(upload):
  algorithm = cmfl.build_cmfl(points.model(2), cmfl.CmflConfig(upload=upload))
  sent = {'point': tf.constant([3.0, 4])}
  start = algorithm.phases['train'].uploads['upload'](sent, None, None)
  expected = [3, 4] if upload == 'model' else [0, 0]
  np.testing.assert_array_equal(start['point'], expected)
