"""Tests of Per-FedAvg: what is served, plan, cost, bad input.

On the points of `tests.testing.points` a client's objective is half the squared
distance to its points: with m their mean the gradient is w - m, and an inner
step of rate alpha keeps 1 - alpha of the way from m to w. `tests/theory` has
the rounds.
"""

import numpy as np
import pytest

from tests.testing import cohorts, points, toys
from tff_algos.algorithms import per_fed_avg
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.numerics import statistics
from tff_algos.rounds import evaluation
from tff_algos.runtimes import debug_runtime

# Their means: (0, 1), (0, -1), (12, 0), none, (2, 0).
_POINTS = points.five()
_MEANS = points.means(_POINTS)
_SOURCE = points.clients(_POINTS)
_POPULATION = _SOURCE.population
_START = np.array([4.0, 8.0])


def _build(**options):
  options = {
    'cohort_size': 4,
    'variant': 'exact',
    'inner_learning_rate': 0.5,
    'client_learning_rate': 0.8,
    'num_local_steps': 1,
    'batch_size': 8,
    'loss_scale': 0.5,
  } | options
  return per_fed_avg.build_per_fed_avg(
    points.model(2), per_fed_avg.PerFedAvgConfig(**options)
  )


def _run(algorithm, num_rounds=1):
  """Returns the model, the personalized models `[N, 2]` and the outputs."""
  weights = {'point': np.array(_START, np.float32)}
  states = [per_fed_avg.ClientState(weights) for _ in _POINTS]
  server_state, states, outputs = toys.run_rounds(
    algorithm,
    _SOURCE,
    num_rounds,
    start=(per_fed_avg.ServerState(weights), states),
  )
  served = np.stack([state.personalized_weights['point'] for state in states])
  return server_state.model_weights['point'], served, outputs


@pytest.mark.parametrize('num_personal_steps', [1, 3])
def test_everybody_is_served_the_new_model_adapted_to_its_own_examples(
  num_personal_steps,
):
  """Also who was not drawn; who has no example gets the model itself."""
  algorithm = _build(cohort_size=1, num_personal_steps=num_personal_steps)
  model, served, (_, output) = _run(algorithm)
  expected = _MEANS + 0.5**num_personal_steps * (model - _MEANS)
  expected[3] = model
  np.testing.assert_allclose(served, expected, rtol=1e-5)
  assert np.abs(model - _START).max() > 0.1
  assert output.num_invalid == 0


def test_between_two_adaptations_clients_keep_the_models_that_they_have():
  algorithm = _build(personalization_interval=2)
  _, served, outputs = _run(algorithm, 1)
  assert len(outputs) == 1
  np.testing.assert_array_equal(served, np.tile(_START, (5, 1)))
  model, served, outputs = _run(algorithm, 3)
  assert len(outputs) == 4
  second, expected, _ = _run(algorithm, 2)
  np.testing.assert_array_equal(served, expected)
  assert np.abs(model - second).max() > 0.1


def test_the_model_that_is_scored_has_seen_training_examples_only():
  """Evaluation, with other points for the test part of every client: each is
  scored with the model adapted to its training points, and none moves.
  """
  algorithm = _build()
  server_state, states, _ = toys.run_rounds(algorithm, _SOURCE, 1)
  served = [np.array(one.personalized_weights['point']) for one in states]
  test_points = np.random.default_rng(0).normal(size=(5, 6, 2))
  test_source = points.clients(list(test_points))
  phase = evaluation.build_personalized_evaluation(algorithm)
  everyone = np.arange(5, dtype=np.int32)
  output = toys.run_call(
    debug_runtime.DebugRuntime(algorithm, 5),
    phase,
    server_state,
    states,
    algorithm_lib.PhaseCall(
      phase.name, everyone, everyone, algorithm_lib.Cost()
    ),
    (0, 0, test_source),
  )
  model = server_state.model_weights['point']
  adapted = (model + _MEANS) / 2
  adapted[3] = model
  distances = ((test_points - adapted[:, np.newaxis]) ** 2).sum(axis=2)
  scores = statistics.value_of(output.server_metrics['score'])
  np.testing.assert_allclose(scores, distances.mean(axis=1), rtol=1e-5)
  for state, before in zip(states, served, strict=True):
    np.testing.assert_array_equal(state.personalized_weights['point'], before)


def test_all_start_from_the_servers_model():
  server_state, states = toys.initial_states(_build(), _POPULATION)
  for state in states:
    np.testing.assert_array_equal(
      state.personalized_weights['point'], server_state.model_weights['point']
    )


def test_plan_draws_a_cohort_and_then_adapts_everybody():
  algorithm = _build(cohort_size=3)
  seen = set()
  for round_num in range(1, 6):
    train, personalize = algorithm.plan_round(None, _POPULATION, round_num, 0)
    expected = cohorts.drawn(0, round_num, [0, 1, 2, 4], 3)
    assert train.client_indices.tolist() == expected.tolist()
    assert (train.phase, personalize.phase) == ('train', 'personalize')
    assert personalize.client_indices.tolist() == [0, 1, 2, 3, 4]
    seen.add(tuple(train.client_indices))
  assert len(seen) > 1


def test_cost_counts_what_adapting_everybody_costs():
  """3 of 5 clients train; 2 parameters."""
  train, personalize = _build(cohort_size=3).plan_round(None, _POPULATION, 1, 0)
  assert train.cost == (3 * 2, 3 * 2, 3)
  assert personalize.cost == (5 * 2, 0, 5)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'num_local_steps': 0}, 'num_local_steps must be an integer >= 1'),
    ({'batch_size': 0}, 'batch_size must be an integer >= 1, got 0'),
    ({'num_personal_steps': 0}, 'num_personal_steps must be an integer >= 1'),
    ({'personalization_interval': 0}, 'personalization_interval must be an in'),
    ({'variant': 'hf'}, "variant must be one of 'exact', 'hessian_free', 'fir"),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'inner_learning_rate': -0.1}, 'inner_learning_rate must be a finite num'),
    ({'client_learning_rate': 0.0}, 'client_learning_rate must be a finite nu'),
    ({'finite_difference_step': 0.0}, 'finite_difference_step must be a finit'),
    ({'loss_scale': -1.0}, 'loss_scale must be a finite number > 0, got -1.0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    per_fed_avg.PerFedAvgConfig(**options)
