"""Tests of Ditto and fine-tuning: rounds by hand, reductions, costs, bad input.

On the points of `tests.testing.points` the objective is half the squared distance
to them: with m their mean, a full-batch step with rate r and pull lambda towards w
takes v to v - r ((v - m) + lambda (v - w)).
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import cohorts, points, toys
from tff_algos.algorithms import ditto, fed_avg
from tff_algos.core import errors
from tff_algos.numerics import optimizers, statistics
from tff_algos.rounds import phase_types
from tff_algos.stages.client import local_training

# Their means: (0, 1), (0, -1), (12, 0), none, (2, 0).
_POINTS = points.five()
_MEANS = points.means(_POINTS)
_SIZES = np.array([2, 1, 4, 0, 3])
_AVAILABLE = [0, 1, 2, 4]
_SOURCE = points.clients(_POINTS)
_POPULATION = _SOURCE.population
_RATE, _PERSONAL_RATE = 0.5, 0.2


def _training(rate, epochs=1):
  return local_training.LocalTrainingConfig(
    epochs, 8, optimizers.OptimizerConfig('sgd', rate)
  )


def _build(is_fine_tuning=False, **options):
  options = {
    'cohort_size': 2,
    'loss_scale': 0.5,
    'local_training': _training(_RATE),
    'personal_training': _training(_PERSONAL_RATE),
  } | options
  if is_fine_tuning:
    config = ditto.FineTuningConfig(**options)
    return ditto.build_fine_tuning(points.model(2), config)
  return ditto.build_ditto(points.model(2), ditto.DittoConfig(**options))


def _run(algorithm, num_rounds=1):
  """Returns w, the served models `[N, 2]`, numbers of updates, outputs."""
  server_state, states, outputs = toys.run_rounds(
    algorithm, _SOURCE, num_rounds
  )
  served = np.stack(
    [
      algorithm.personalized_weights(server_state, state, tf.constant(k))[
        'point'
      ]
      for k, state in enumerate(states)
    ]
  )
  updates = [int(state.num_updates) for state in states]
  return server_state.model_weights['point'], served, updates, outputs


def _start():
  server_state, _ = toys.initial_states(_build(), _POPULATION)
  return server_state.model_weights['point'].astype(np.float64)


def _cohort(round_num, size=2):
  return cohorts.drawn(0, round_num, _AVAILABLE, size)


def _average(w, cohort, pull=0.0, steps=1):
  """FedAvg's, or FedProx's, next model."""
  uploads = []
  for k in cohort:
    local = w
    for _ in range(steps):
      local = local - _RATE * (local - _MEANS[k] + pull * (local - w))
    uploads.append(local)
  return np.average(uploads, axis=0, weights=_SIZES[cohort])


def _step(v, k, w, pull):
  return v - _PERSONAL_RATE * (v - _MEANS[k] + pull * (v - w))


@pytest.mark.parametrize('start', ditto.STARTS)
def test_rounds_by_hand(start):
  """v_k moves towards the model that its client received, from its own v_k."""
  w, own = _start(), {}
  for t in range(1, 5):
    for k in _cohort(t):
      begin = own.get(k, w) if start == 'own' else w
      own[k] = _step(begin, k, w, 0.75)
    w = _average(w, _cohort(t))
  expected = [own.get(k, w) for k in range(5)]
  model, served, updates, _ = _run(_build(proximal_weight=0.75, start=start), 4)
  np.testing.assert_allclose(model, w, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(served, expected, rtol=1e-5, atol=1e-6)
  drawn = np.concatenate([_cohort(t) for t in range(1, 5)])
  assert updates == np.bincount(drawn, minlength=5).tolist()
  assert max(updates) > 1


@pytest.mark.parametrize('is_fine_tuning', [False, True])
@pytest.mark.parametrize('pull', [0.0, 0.4])
def test_the_global_model_is_that_of_fed_avg(is_fine_tuning, pull):
  """Bit for bit; with the pull, FedProx's."""
  algorithm = _build(is_fine_tuning, global_proximal_weight=pull)
  config = fed_avg.FedAvgConfig(
    cohort_size=2,
    loss_scale=0.5,
    local_training=_training(_RATE),
    proximal_weight=pull,
  )
  alone = fed_avg.build_fed_avg(points.model(2), config)
  state, _, _ = toys.run_rounds(alone, _SOURCE, 3)
  np.testing.assert_array_equal(
    _run(algorithm, 3)[0], state.model_weights['point']
  )


def test_fed_prox_pulls_the_global_models_copies_to_it():
  algorithm = _build(
    global_proximal_weight=0.4, local_training=_training(_RATE, 3)
  )
  expected = _average(_start(), _cohort(1), 0.4, 3)
  np.testing.assert_allclose(_run(algorithm)[0], expected, rtol=1e-5, atol=1e-6)


def test_without_a_pull_each_client_is_alone():
  """After T steps (1 - rate)^T of the way from its mean are left."""
  algorithm = _build(proximal_weight=0.0, cohort_size=0)
  _, served, updates, _ = _run(algorithm, 3)
  assert updates == [3, 3, 3, 0, 3]
  left = (1 - _PERSONAL_RATE) ** 3
  expected = _MEANS + left * (_start() - _MEANS)
  np.testing.assert_allclose(
    served[_AVAILABLE], expected[_AVAILABLE], rtol=1e-5, atol=1e-6
  )


def test_without_a_pull_and_from_the_global_model_it_is_fine_tuning():
  options = {'schedule': 'after', 'start': 'received', 'proximal_weight': 0.0}
  _, served, _, _ = _run(_build(**options), 2)
  _, expected, _, _ = _run(_build(True), 2)
  np.testing.assert_array_equal(served, expected)


@pytest.mark.parametrize('schedule', ditto.SCHEDULES)
def test_a_strong_pull_leaves_the_global_model(schedule):
  """With rate 1 / (1 + lambda) a step ends at (m + lambda w) / (1 + lambda)."""
  pull = 999.0
  algorithm = _build(
    schedule=schedule,
    cohort_size=0,
    proximal_weight=pull,
    personal_training=_training(1 / (1 + pull)),
  )
  model, served, _, _ = _run(algorithm)
  around = {'beside': _start(), 'after': model}[schedule]
  expected = (_MEANS + pull * around) / (1 + pull)
  np.testing.assert_allclose(
    served[_AVAILABLE], expected[_AVAILABLE], rtol=1e-4, atol=1e-5
  )
  assert np.abs(served[_AVAILABLE] - around).max() < 0.02


def test_all_with_examples_are_fine_tuned_after_the_update():
  """Two epochs from the new model; who has no example gets the model itself."""
  algorithm = _build(
    True, proximal_weight=0.1, personal_training=_training(_PERSONAL_RATE, 2)
  )
  w = _average(_start(), _cohort(1))
  expected = np.tile(w, (5, 1))
  for k in _AVAILABLE:
    for _ in range(2):
      expected[k] = _step(expected[k], k, w, 0.1)
  model, served, updates, (_, output) = _run(algorithm)
  np.testing.assert_allclose(served, expected, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(served[3], model)
  assert updates == [1, 1, 1, 0, 1]
  # The spread of the points around their means, and the way to these.
  losses = [((_POINTS[k] - w) ** 2).sum() for k in _AVAILABLE]
  later = [((_POINTS[k] - _step(w, k, w, 0.1)) ** 2).sum() for k in _AVAILABLE]
  loss = statistics.value_of(output.client_metrics['personal_loss'])
  np.testing.assert_allclose(loss, (sum(losses) + sum(later)) / 20, rtol=1e-5)


def test_between_two_fine_tunings_clients_keep_their_models():
  algorithm = _build(True, personalization_interval=2)
  first_model, served, updates, _ = _run(algorithm)
  np.testing.assert_array_equal(served, np.tile(first_model, (5, 1)))
  assert updates == [0] * 5
  _, second, _, _ = _run(algorithm, 2)
  _, third, updates, outputs = _run(algorithm, 3)
  np.testing.assert_array_equal(third[_AVAILABLE], second[_AVAILABLE])
  assert updates == [1, 1, 1, 0, 1]
  assert len(outputs) == 4


def test_no_personalized_model_is_uploaded():
  types = phase_types.check_algorithm(_build())
  assert not types['personalize'].output.result
  assert list(types['train'].output.result) == [
    'local_weights',
    'client_weight',
  ]
  assert types['train'].clients.client_state == ()


def test_cost_and_order():
  """2 parameters, 2 drawn of 4 with examples; w is sent once a round."""
  calls = list(_build().plan_round(None, _POPULATION, 1, 0))
  assert [call.phase for call in calls] == ['personalize', 'train']
  assert [call.cost for call in calls] == [(0, 0, 2), (4, 4, 2)]
  for call in calls:
    assert call.client_indices.tolist() == _cohort(1).tolist()
  calls = list(_build(True).plan_round(None, _POPULATION, 1, 0))
  assert [call.phase for call in calls] == ['train', 'personalize']
  assert [call.cost for call in calls] == [(4, 4, 2), (8, 0, 4)]
  assert calls[1].client_indices.tolist() == _AVAILABLE


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'schedule': 'before'}, "schedule must be one of 'beside', 'after', got"),
    ({'start': 'theirs'}, "start must be one of 'own', 'received', got"),
    ({'proximal_weight': -1.0}, 'proximal_weight must be a finite number >= 0'),
    ({'global_proximal_weight': -1.0}, 'global_proximal_weight must be a fini'),
    ({'personalization_interval': 0}, 'personalization_interval must be an in'),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0, got 0.0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    ditto.DittoConfig(**options)
