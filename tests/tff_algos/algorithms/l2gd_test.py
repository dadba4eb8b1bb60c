"""Tests of L2GD: rounds by hand, runs of coins, cost, states and bad input.

On the points of `tests.testing.points` a client's objective is half the squared
distance to its points, so that a local step of learning rate r keeps 1 - r of
the way from their mean to the model.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points, toys
from tff_algos.algorithms import l2gd
from tff_algos.core import errors
from tff_algos.rounds import aggregation
from tff_algos.runtimes import debug_runtime

# Their means: (0, 1), (12, 0), none, (2, 0).
_POINTS = points.four()
_MEANS = points.means(_POINTS)
_SOURCE = points.clients(_POINTS)
_POPULATION = _SOURCE.population
# A local step goes 0.2 / 0.8 = a quarter, an aggregation step 0.2 / 0.2 * 0.5 =
# a half of the way.
_OPTIONS = {
  'proximal_weight': 0.5,
  'aggregation_prob': 0.2,
  'client_learning_rate': 0.2,
  'loss_scale': 0.5,
}
_MODELS = np.array([[4.0, 0], [0, 8], [6, 6], [2, 1]])
_MEAN = _MODELS[[0, 1, 3]].mean(axis=0)


def _build(**options):
  return l2gd.build_l2gd(
    points.model(2), l2gd.L2gdConfig(**{**_OPTIONS, **options})
  )


def _server_state(mean=_MEAN, num_rounds=0):
  return l2gd.ServerState(
    {'point': np.array(mean, np.float32)},
    np.array(num_rounds, np.int32),
    np.array([5, 6], np.int32),
  )


def _step(num_aggregations, num_local, source=_SOURCE, mean=_MEAN):
  """Returns the mean and the models `[N, 2]` after one call."""
  algorithm = _build()
  states = [
    l2gd.ClientState({'point': np.array(row, np.float32)}) for row in _MODELS
  ]
  said = l2gd.Message(
    {'point': tf.constant(mean, tf.float32)},
    tf.constant(num_aggregations),
    tf.constant(num_local),
  )
  (call,) = algorithm.plan_round(None, source.population, 1, 0)
  output = toys.run_call(
    debug_runtime.DebugRuntime(algorithm, 4),
    algorithm.phases['train']._replace(make_message=lambda server_state: said),
    _server_state(mean),
    states,
    call,
    (1, 0, source),
  )
  models = np.stack([state.personalized_weights['point'] for state in states])
  return output.server_state.model_weights['point'], models


def test_aggregation_comes_before_the_local_steps():
  _, models = _step(1, 1)
  start = (_MODELS + _MEAN) / 2
  expected = start + 0.25 * (_MEANS - start)
  expected[2] = start[2]
  np.testing.assert_allclose(models, expected, rtol=1e-6)


def test_if_nobody_has_examples_the_mean_stays():
  source = points.clients([np.zeros((0, 2))] * 4)
  mean, models = _step(1, 2, source, mean=[9, 9])
  assert mean.tolist() == [9, 9]
  np.testing.assert_allclose(models, (_MODELS + 9) / 2, rtol=1e-6)


def test_all_start_from_one_model_and_are_served_their_own():
  algorithm = _build()
  server_state, states = toys.initial_states(algorithm, _POPULATION)
  first = server_state.model_weights['point']
  for state in states:
    np.testing.assert_array_equal(state.personalized_weights['point'], first)
  other = l2gd.ClientState({'point': first + 1})
  served = algorithm.personalized_weights(server_state, other, 0)
  np.testing.assert_array_equal(served['point'], first + 1)
  (row,) = algorithm.cluster_weights(server_state)['point']
  np.testing.assert_array_equal(row, first)
  assert algorithm.membership(server_state, other, 0).numpy().tolist() == [1]


def test_every_round_has_runs_of_its_own_which_are_said_and_measured():
  algorithm = _build()
  phase = algorithm.phases['train']
  seen = set()
  for num_rounds in range(30):
    state = _server_state(num_rounds=num_rounds)
    said = phase.make_message(state)
    runs = (int(said.num_aggregation_steps), int(said.num_local_steps))
    assert runs[1] >= 1
    # All are equal at first, so there is nothing to aggregate.
    assert runs[0] >= 1 if num_rounds else runs[0] == 0
    mean = aggregation.Mean(state.model_weights, tf.constant(1.0))
    after, metrics = phase.server_update(state, {'local_weights': mean})
    assert tuple(int(value) for value in metrics.values()) == runs
    assert int(after.num_rounds) == num_rounds + 1
    seen.add(runs)
  assert len(seen) > 10


def test_cost_is_one_model_each_way_and_two_numbers():
  """Everybody takes part: 4 clients, 2 parameters."""
  (call,) = _build().plan_round(None, _POPULATION, 3, 0)
  assert call.client_indices.tolist() == [0, 1, 2, 3]
  assert call.cost == (4 * (2 + 2), 4 * 2, 4)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'proximal_weight': -1.0}, 'proximal_weight must be a finite number >= 0'),
    ({'aggregation_prob': 0.0}, 'aggregation_prob must be a number > 0 and <'),
    ({'aggregation_prob': 1.0}, 'aggregation_prob must be a number > 0 and <'),
    ({'aggregation_prob': 1e-10}, 'must be from 1e-06 to 1 - 1e-06, got 1e-10'),
    (
      {'aggregation_prob': 1 - 1e-9},
      'must be from 1e-06 to 1 - 1e-06, got 0.9',
    ),
    ({'client_learning_rate': 0.0}, 'client_learning_rate must be a finite nu'),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0, got 0.0'),
    (
      {'proximal_weight': 3.0},
      'aggregation_prob is 3; it is the share .* must be at most 1. Lower',
    ),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    l2gd.L2gdConfig(**{**_OPTIONS, **options})
