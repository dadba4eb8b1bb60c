"""Tests of BrainTorrent: merges and versions by hand, cost, states, bad input.

On the points of `tests.testing.points` one full-batch step of learning rate r
goes r of the way from the model to the client's mean, for a loss scale of 1/2.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import brain_torrent
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

# Their means: (0, 1), (12, 0), none, (2, 0).
_POINTS = points.four()
_SIZES = np.array([2, 4, 0, 3])
_MEANS = points.means(_POINTS)
_SOURCE = points.clients(_POINTS)
_POPULATION = _SOURCE.population


def _training(learning_rate):
  return local_training.LocalTrainingConfig(
    batch_size=32,
    optimizer=optimizers.OptimizerConfig('sgd', learning_rate=learning_rate),
  )


def _build(learning_rate=0.5):
  return brain_torrent.build_brain_torrent(
    points.model(2),
    brain_torrent.BrainTorrentConfig(0.5, _training(learning_rate)),
  )


def _own(states):
  return np.stack([state.personalized_weights['point'] for state in states])


def _initiator(round_num, seed=0):
  """Returns whom the plan draws, whatever the state."""
  state, _ = toys.initial_states(_build(), _POPULATION)
  (call,) = _build().plan_round(state, _POPULATION, round_num, seed)
  return call.client_indices.tolist()


def test_a_merge_is_the_mean_by_examples():
  """Client 0 (2 examples) has seen version 1 of 1 and 2 of 3; only 1 is newer."""
  state = brain_torrent.ServerState(
    {'point': np.array([[1, 1], [5, 7], [0, 0], [9, 9]], np.float32)},
    np.array([2, 4, 0, 3], np.float32),
    np.array([[1, 1, 0, 2], [0, 2, 0, 1], [0] * 4, [0, 0, 0, 2]], np.int32),
  )
  fetched, num_fetched = brain_torrent.fetch(state, 0, 2)
  assert num_fetched == 1
  np.testing.assert_allclose(fetched.mean['point'], [5, 7])
  np.testing.assert_allclose(fetched.share, 4 / 6)
  # Client 3 has seen nobody: 0 and 1 are newer.
  fetched, num_fetched = brain_torrent.fetch(state, 3, 3)
  assert num_fetched == 2
  mean = (2 * np.array([1, 1]) + 4 * np.array([5, 7])) / 6
  np.testing.assert_allclose(fetched.mean['point'], mean, rtol=1e-6)
  np.testing.assert_allclose(fetched.share, 6 / 9)


def test_who_has_seen_everything_fetches_nothing():
  state = brain_torrent.ServerState(
    {'point': np.array([[1, 2], [3, 4]], np.float32)},
    np.array([2, 4], np.float32),
    np.array([[1, 1], [0, 1]], np.int32),
  )
  fetched, num_fetched = brain_torrent.fetch(state, 0, 2)
  assert num_fetched == 0
  assert fetched.share == 0
  np.testing.assert_array_equal(fetched.mean['point'], [1, 2])


def test_rounds_and_versions_by_hand():
  """NumPy plays the same initiators; each goes half the way to its mean."""
  num_rounds = 9
  state, states, outputs = toys.run_rounds(_build(), _SOURCE, num_rounds)
  models = _own(toys.initial_states(_build(), _POPULATION)[1]).astype(float)
  versions = np.zeros((4, 4), int)
  for round_num in range(1, num_rounds + 1):
    trained = _initiator(round_num) if round_num > 1 else [0, 1, 3]
    for i in trained:
      current = np.diagonal(versions).copy()
      newer = [j for j in range(4) if j != i and current[j] > versions[i, j]]
      if round_num > 1:
        merging = [*newer, i]
        models[i] = np.average(models[merging], 0, _SIZES[merging])
        versions[i] = current
        found = outputs[round_num - 1].server_metrics
        assert found['num_fetched'] == len(newer)
      models[i] = (models[i] + _MEANS[i]) / 2
      versions[i, i] += 1
  np.testing.assert_allclose(_own(states), models, rtol=1e-5)
  np.testing.assert_array_equal(state.versions, versions)
  assert np.diagonal(versions).sum() == 3 + num_rounds - 1
  np.testing.assert_array_equal(state.num_examples, _SIZES)
  # What others would get is what its owner has.
  np.testing.assert_allclose(state.sent['point'], models, rtol=1e-5)


def test_the_model_of_reports_and_newcomers_is_the_mean_by_examples():
  algorithm = _build()
  state, states, _ = toys.run_rounds(algorithm, _SOURCE, 5)
  found = algorithm.cluster_weights(state)['point']
  expected = np.average(_own(states), axis=0, weights=_SIZES)
  np.testing.assert_allclose(found, [expected], rtol=1e-5)
  newcomer = algorithm.carry.newcomer_state(state)
  np.testing.assert_array_equal([newcomer.personalized_weights['point']], found)


def test_consensus_distance_is_measured():
  _, states, outputs = toys.run_rounds(_build(), _SOURCE, 4)
  models = _own(states)
  mean = np.average(models, axis=0, weights=_SIZES)
  squared = ((models - mean) ** 2).sum(axis=1)
  np.testing.assert_allclose(
    outputs[-1].server_metrics['consensus_distance'],
    np.sqrt(np.average(squared, weights=_SIZES)),
    rtol=1e-4,
  )


def test_initiators_have_examples_and_are_drawn_by_round_and_seed():
  algorithm = _build()
  state, _ = toys.initial_states(algorithm, _POPULATION)

  def draw(seed):
    calls = [
      next(algorithm.plan_round(state, _POPULATION, round_num, seed))
      for round_num in range(2, 80)
    ]
    return [call.client_indices.tolist() for call in calls]

  drawn = draw(0)
  assert {len(one) for one in drawn} == {1}
  assert {one[0] for one in drawn} == {0, 1, 3}
  assert drawn == draw(0)
  assert drawn != draw(1)


def test_cost_and_messages():
  """P = 2: a model with its number of examples is 3 floats; 3 versions."""
  algorithm = _build()
  state, _, outputs = toys.run_rounds(algorithm, _SOURCE, 1)
  assert outputs[0].server_metrics['num_messages'] == 0
  first, _ = toys.initial_states(algorithm, _POPULATION)
  (call,) = algorithm.plan_round(first, _POPULATION, 1, 0)
  assert call.cost == (0, 0, 3)
  assert call.client_inputs.share.tolist() == [0, 0, 0]
  (call,) = algorithm.plan_round(state, _POPULATION, 2, 0)
  assert call.cost == (2 * 3 + 3, 2 * 3 + 3, 1)
  _, _, outputs = toys.run_rounds(algorithm, _SOURCE, 2)
  assert outputs[1].server_metrics['num_messages'] == 6
  assert outputs[1].server_metrics['num_fetched'] == 2


def test_an_initiator_with_nan_changes_nothing():
  broken = _initiator(2)[0]
  source = points.clients(_POINTS)
  algorithm = _build()
  start = toys.run_rounds(algorithm, _SOURCE, 1)
  source.examples(broken).x[0] = np.nan
  state, states, outputs = toys.run_rounds(
    algorithm, source, 1, 0, start[:2], first_round=2
  )
  assert outputs[0].num_invalid == 1
  np.testing.assert_equal(state, start[0])
  np.testing.assert_equal(states, start[1])


def test_a_liar_keeps_its_own_model_and_the_others_get_the_false_one():
  plain = _build()
  algorithm = attacks.attack(
    plain,
    attacks.AttackConfig('sign_flip', client_ids=('c001',)),
    np.array([False, True, False, False]),
  )
  state, states, _ = toys.run_rounds(algorithm, _SOURCE, 1)
  expected_state, expected, _ = toys.run_rounds(plain, _SOURCE, 1)
  np.testing.assert_array_equal(_own(states), _own(expected))
  first = _own(toys.initial_states(plain, _POPULATION)[1])[1]
  np.testing.assert_allclose(
    state.sent['point'][1],
    2 * first - expected_state.sent['point'][1],
    rtol=1e-5,
  )


def test_bad_options_are_refused():
  with pytest.raises(
    errors.ConfigError, match='loss_scale must be a finite number > 0'
  ):
    brain_torrent.BrainTorrentConfig(loss_scale=0.0)


def test_all_start_from_one_model():
  state, states = toys.initial_states(_build(), _POPULATION)
  for one in states:
    tf.nest.map_structure(
      lambda own, sent: np.testing.assert_array_equal([own] * 4, sent),
      one.personalized_weights,
      state.sent,
    )
