"""Tests of segmented gossip: NumPy oracle, consensus, FedAvg's mean, cost.

A learning rate of 1e-30 is no training: no float32 changes by it.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import fed_avg
from tff_algos.algorithms.gossip import gossip
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import local_training

_P = 5
_SIZES = np.array([2, 4, 0, 3, 1, 7])
_NUM_CLIENTS = len(_SIZES)
_RNG = np.random.default_rng(0)
_MODELS = _RNG.normal(size=(_NUM_CLIENTS, _P)).astype(np.float32)
_SOURCE = points.clients([_RNG.normal(size=(size, _P)) for size in _SIZES])
_POPULATION = _SOURCE.population


def _config(num_segments=2, num_replicas=2, learning_rate=1e-30):
  return gossip.GossipConfig(
    num_segments,
    num_replicas,
    0.5,
    local_training.LocalTrainingConfig(
      batch_size=32,
      optimizer=optimizers.OptimizerConfig('sgd', learning_rate=learning_rate),
    ),
  )


def _build(*options):
  return gossip.build_gossip(points.model(_P), _config(*options))


def _run(algorithm, num_rounds, models=_MODELS, source=_SOURCE, seed=0):
  """Returns the merged models, state, states and outputs."""
  population = source.population
  state, states = toys.initial_states(algorithm, population, seed)
  if models is not None:
    states = [gossip.ClientState({'point': row}) for row in models]
  state, states, outputs = toys.run_rounds(
    algorithm, source, num_rounds, seed, (state, states)
  )
  return _merged(algorithm, state, states), state, states, outputs


def _merged(algorithm, state, states):
  return np.stack(
    [
      algorithm.personalized_weights(
        tf.nest.map_structure(tf.constant, state), own, tf.constant(i)
      )['point']
      for i, own in enumerate(states)
    ]
  )


def _mix(models, config, round_num):
  """Returns what every worker has after pulling, by loops of NumPy."""
  bounds = np.array_split(np.arange(models.shape[1]), config.num_segments)
  mixed = np.array(models, np.float64)
  for i in range(len(models)):
    drawn = gossip.draw_peers(_POPULATION, i, config, 0, round_num)
    for entries, row in zip(bounds, drawn, strict=True):
      members = [i, *row[row >= 0]]
      mixed[i, entries] = np.average(
        models[np.ix_(members, entries)], axis=0, weights=_SIZES[members]
      )
  return mixed


@pytest.mark.parametrize('num_segments', [1, 2, 5])
@pytest.mark.parametrize('num_replicas', [1, 2, 4, 9])
def test_rounds_without_training_are_numpys(num_segments, num_replicas):
  algorithm = _build(num_segments, num_replicas)
  models = _MODELS.astype(np.float64)
  for round_num in range(1, 4):
    models = _mix(models, _config(num_segments, num_replicas), round_num)
  found, state, _, _ = _run(algorithm, 3)
  np.testing.assert_allclose(found, models, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
    state.model_weights['point'],
    np.average(models, axis=0, weights=_SIZES),
    rtol=1e-4,
    atol=1e-5,
  )


def _distance(models, sizes):
  mean = np.average(models, axis=0, weights=sizes)
  squared = ((models - mean) ** 2).sum(axis=1)
  return np.sqrt(np.average(squared, weights=sizes))


def test_the_consensus_error_falls_as_numpys_does():
  config, models, expected = _config(), _MODELS.astype(np.float64), []
  for round_num in range(1, 9):
    models = _mix(models, config, round_num)
    expected.append(_distance(models, _SIZES))
  _, _, _, outputs = _run(_build(), 8)
  found = [one.server_metrics['consensus_distance'] for one in outputs]
  np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
  assert found[-1] < 0.05 * _distance(_MODELS, _SIZES)
  assert (np.diff([_distance(_MODELS, _SIZES), *found]) < 0).all()


def test_with_all_peers_everybody_has_fed_avgs_mean():
  """Also the worker without examples."""
  training = _config(3, _NUM_CLIENTS - 1, 0.3)
  algorithm = gossip.build_gossip(points.model(_P), training)
  found, state, _, outputs = _run(algorithm, 3, models=None)
  averaging = fed_avg.build_fed_avg(
    points.model(_P),
    fed_avg.FedAvgConfig(
      np.count_nonzero(_SIZES),
      loss_scale=0.5,
      local_training=training.local_training,
    ),
  )
  expected = toys.run_rounds(averaging, _SOURCE, 3)[0].model_weights['point']
  np.testing.assert_allclose(found, [expected] * _NUM_CLIENTS, rtol=1e-4)
  np.testing.assert_allclose(state.model_weights['point'], expected, rtol=1e-4)
  np.testing.assert_allclose(
    outputs[-1].server_metrics['consensus_distance'], 0, atol=1e-6
  )


def test_a_round_of_training_by_hand():
  """Each goes 0.3 of the way to the mean of its points, then all pull."""
  config = _config(2, 2, 0.3)
  found, _, states, _ = _run(gossip.build_gossip(points.model(_P), config), 1)
  trained = _MODELS.astype(np.float64)
  for i in np.flatnonzero(_SIZES):
    mean = _SOURCE.examples(i).x.mean(axis=0)
    trained[i] += 0.3 * (mean - trained[i])
  own = np.stack([state.local_weights['point'] for state in states])
  np.testing.assert_allclose(own, trained, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
    found, _mix(trained, config, 1), rtol=1e-4, atol=1e-5
  )


def test_peers_are_others_with_examples_and_distinct():
  config = _config(4, 3)
  drawn = gossip.draw_peers(_POPULATION, 1, config, 0, 1)
  assert drawn.shape == (4, 3)
  assert drawn.dtype == np.int32
  for row in drawn:
    assert set(row) <= {0, 3, 4, 5}
    assert len(set(row)) == 3
  assert len({tuple(sorted(row)) for row in drawn}) > 1
  for other in (
    gossip.draw_peers(_POPULATION, 1, config, 0, 2),
    gossip.draw_peers(_POPULATION, 1, config, 1, 1),
    gossip.draw_peers(_POPULATION, 0, config, 0, 1),
  ):
    assert other.tolist() != drawn.tolist()
  np.testing.assert_array_equal(
    drawn, gossip.draw_peers(_POPULATION, 1, config, 0, 1)
  )


def test_where_there_are_fewer_peers_the_rest_is_nobody():
  drawn = gossip.draw_peers(_POPULATION, 0, _config(2, 6), 0, 1)
  for row in drawn:
    assert sorted(row) == [-1, -1, 1, 3, 4, 5]


def test_peers_are_drawn_uniformly():
  """Each of 4 others is half of the time among 2; all are within 4 deviations, but
  once in 5,000 choices of seeds.
  """
  config, counts = _config(1, 2), np.zeros(_NUM_CLIENTS)
  for round_num in range(400):
    counts[gossip.draw_peers(_POPULATION, 0, config, 0, round_num)] += 1
  assert counts[[0, 2]].tolist() == [0, 0]
  np.testing.assert_allclose(counts[[1, 3, 4, 5]], 200, atol=4 * 10)


def test_cost_and_messages():
  """Segments of 3 and 2 entries, each with a number of examples; who has
  examples has 4 peers, client 2 has 5.
  """
  algorithm = _build(2, 2)
  state, _ = toys.initial_states(algorithm, _POPULATION)
  (call,) = algorithm.plan_round(state, _POPULATION, 1, 0)
  assert call.cost == (6 * 2 * (3 + 1 + 2 + 1),) * 2 + (6,)
  _, _, _, outputs = _run(algorithm, 1)
  assert outputs[0].server_metrics['num_messages'] == 2 * 6 * 2 * 2
  algorithm = _build(2, 9)
  state, _ = toys.initial_states(algorithm, _POPULATION)
  (call,) = algorithm.plan_round(state, _POPULATION, 1, 0)
  assert call.cost[0] == (5 * 4 + 5) * 7
  _, _, _, outputs = _run(algorithm, 1)
  assert outputs[0].server_metrics['num_messages'] == 2 * 2 * (5 * 4 + 5)


def test_who_is_not_there_is_pulled_by_nobody_and_keeps_its_model():
  """A worker with NaN, and one that dropped out: the same."""
  algorithm = _build(2, 5, 0.3)
  source = points.clients(
    [_SOURCE.examples(i).x.copy() for i in range(_NUM_CLIENTS)]
  )
  source.examples(5).x[0] = np.nan
  found, state, states, outputs = _run(algorithm, 1, source=source)
  assert outputs[0].num_invalid == 1
  np.testing.assert_array_equal(states[5].local_weights['point'], _MODELS[5])
  np.testing.assert_array_equal(state.inbox.share[5], 0)
  others = [0, 1, 3, 4]
  own = np.stack([one.local_weights['point'] for one in states])
  mean = np.average(own[others], axis=0, weights=_SIZES[others])
  np.testing.assert_allclose(found[[0, 1, 2, 3, 4]], [mean] * 5, rtol=1e-4)
  runtime = debug_runtime.DebugRuntime(algorithm, _NUM_CLIENTS)
  first, _ = toys.initial_states(algorithm, _POPULATION)
  own = [gossip.ClientState({'point': row}) for row in _MODELS]
  (call,) = algorithm.plan_round(first, _POPULATION, 1, 0)
  left = algorithm_lib.PhaseCall(
    'train',
    call.client_indices[:5],
    tf.nest.map_structure(lambda leaf: leaf[:5], call.client_inputs),
    call.cost,
  )
  output = toys.run_call(
    runtime, algorithm.phases['train'], first, own, left, (1, 0, _SOURCE)
  )
  tf.nest.map_structure(
    lambda one, other: np.testing.assert_allclose(
      one, other, rtol=1e-4, atol=1e-6
    ),
    output.server_state,
    state,
  )


def test_a_liar_keeps_its_own_model_and_the_others_get_the_false_one():
  """From what it was sent, here the first model, in the other direction."""
  plain = _build(2, _NUM_CLIENTS, 0.3)
  is_attacker = np.arange(_NUM_CLIENTS) == 5
  algorithm = attacks.attack(
    plain, attacks.AttackConfig('sign_flip', client_ids=('c005',)), is_attacker
  )
  _, state, states, _ = _run(algorithm, 1)
  _, _, honest, _ = _run(plain, 1)
  own, expected = (
    np.stack([one.local_weights['point'] for one in each])
    for each in (states, honest)
  )
  np.testing.assert_array_equal(own, expected)
  first = toys.initial_states(plain, _POPULATION)[0].model_weights['point']
  sent = own.astype(np.float64)
  sent[5] = 2 * first - own[5]
  np.testing.assert_allclose(
    state.inbox.pulled[0],
    np.average(sent[1:], axis=0, weights=_SIZES[1:]),
    rtol=1e-4,
    atol=1e-5,
  )
  np.testing.assert_allclose(
    state.inbox.pulled[5],
    np.average(own[:5], axis=0, weights=_SIZES[:5]),
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_segments': 0}, 'num_segments must be an integer >= 1'),
    ({'num_replicas': 0}, 'num_replicas must be an integer >= 1'),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0'),
  ],
)
def test_bad_options_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    gossip.GossipConfig(**options)


def test_more_segments_than_parameters_are_refused():
  with pytest.raises(errors.ConfigError, match='has only 5 parameters'):
    _build(6)
