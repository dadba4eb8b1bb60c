"""Tests of pFedMe: rounds by hand, who trains, costs, bad input.

As in `pfedkm_test`, theta and w end half way between the model and the mean of
the client's points.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import cohorts, points, toys
from tff_algos.algorithms import pfedme
from tff_algos.core import errors
from tff_algos.rounds import phase_types
from tff_algos.stages.client import moreau_envelope

_HALF_WAY = moreau_envelope.MoreauEnvelopeConfig(
  num_local_steps=1,
  batch_size=32,
  client_learning_rate=1.0,
  proximal_weight=1.0,
  num_proximal_steps=1,
  personal_learning_rate=0.5,
)
# Their means: (0, 4), (0, 8), none, (24, 0).
_MEANS = np.array([[0, 4], [0, 8], [0, 0], [24, 0]])
_POINTS = [
  np.array([[-1, 4], [1, 4], [0, 4]]),
  np.array([[0, 8]]),
  np.zeros((0, 2)),
  np.array([[24, 0]]),
]
_SOURCE = points.clients(_POINTS)


def _build(**options):
  options = {'loss_scale': 0.5, 'local_training': _HALF_WAY} | options
  return pfedme.build_pfedme(points.model(2), pfedme.PFedMeConfig(**options))


def _run(num_rounds=1, source=_SOURCE, **options):
  """Returns the global model, thetas, numbers of updates and the last output."""
  algorithm = _build(**options)
  _, states = toys.initial_states(algorithm, source.population)
  state = pfedme.ServerState({'point': np.zeros(2, np.float32)})
  state, states, outputs = toys.run_rounds(
    algorithm, source, num_rounds, start=(state, states)
  )
  thetas = np.stack([one.personalized_weights['point'] for one in states])
  updates = [int(one.num_updates) for one in states]
  return state.model_weights['point'], thetas, updates, outputs[-1]


def _drawn(cohort_size, round_num=1):
  return cohorts.drawn(0, round_num, [0, 1, 3], cohort_size)


def test_round_by_hand():
  model, thetas, updates, _ = _run()
  np.testing.assert_allclose(model, [4, 2], rtol=1e-5)
  np.testing.assert_allclose(thetas, _MEANS / 2, atol=1e-5)
  assert updates == [1, 1, 0, 1]


def test_weighting_and_mixing():
  """(3 (0, 2) + (0, 4) + (12, 0)) / 5, and a quarter of the way to it."""
  model, _, _, _ = _run(weighting='examples')
  np.testing.assert_allclose(model, [2.4, 2], rtol=1e-5)
  model, _, _, _ = _run(weighting='examples', server_mixing=0.25)
  np.testing.assert_allclose(model, [0.6, 0.5], rtol=1e-5)


def test_weighting_by_examples_is_plain_among_equals():
  source = points.clients([one[:1] for one in _POINTS])
  plain, _, _, _ = _run(2, source)
  np.testing.assert_allclose(
    _run(2, source, weighting='examples')[0], plain, rtol=1e-6
  )


def test_all_train_and_the_drawn_are_averaged():
  drawn = _drawn(2)
  model, thetas, updates, _ = _run(cohort_size=2)
  np.testing.assert_allclose(model, _MEANS[drawn].mean(axis=0) / 2, rtol=1e-5)
  np.testing.assert_allclose(thetas, _MEANS / 2, atol=1e-5)
  assert updates == [1, 1, 0, 1]


def test_if_the_cohort_alone_trains_the_global_models_are_the_same():
  for num_rounds in (1, 3):
    everyone, _, _, _ = _run(num_rounds, cohort_size=2)
    cohort, thetas, updates, _ = _run(
      num_rounds, cohort_size=2, training_clients='cohort'
    )
    np.testing.assert_array_equal(cohort, everyone)
    assert sum(updates) == 2 * num_rounds
  assert sum(updates) < 9


@pytest.mark.parametrize('tolerance', [0.0, 0.1])
def test_if_nobody_is_valid_the_model_stays(tolerance):
  source = points.clients(_POINTS)
  for index in (0, 1, 3):
    source.examples(index).x[0, 0] = np.nan
  model, _, updates, output = _run(
    source=source,
    server_mixing=0.5,
    local_training=dataclasses.replace(_HALF_WAY, proximal_tolerance=tolerance),
  )
  assert output.num_invalid == 3
  assert model.tolist() == [0, 0]
  assert updates == [0, 0, 0, 0]


@pytest.mark.parametrize(
  ('options', 'expected'),
  [
    ({}, (3 * 2, 3 * 2, 3)),
    ({'cohort_size': 2}, (3 * 2, 2 * 2, 3)),
    ({'cohort_size': 2, 'training_clients': 'cohort'}, (2 * 2, 2 * 2, 2)),
    ({'weighting': 'examples'}, (3 * 2, 3 * 3, 3)),
  ],
)
def test_cost_is_a_model_down_to_all_and_a_model_up_from_the_drawn(
  options, expected
):
  (call,) = _build(**options).plan_round(None, _SOURCE.population, 1, 0)
  assert call.cost == expected
  drawn = _drawn(options.get('cohort_size', 3))
  asked = call.client_inputs.counts.astype(bool)
  np.testing.assert_array_equal(call.client_indices[asked], drawn)


def test_only_the_local_model_and_a_number_leave_a_client():
  types = phase_types.check_algorithm(_build())['train']
  assert list(types.output.result) == ['local_weights', 'client_weight']


def test_almost_without_a_pull_each_client_is_alone():
  """Its theta is its own minimiser, and the global model stays."""
  config = dataclasses.replace(
    _HALF_WAY, proximal_weight=1e-6, num_proximal_steps=30
  )
  model, thetas, _, _ = _run(local_training=config)
  np.testing.assert_allclose(thetas, _MEANS, atol=1e-4)
  np.testing.assert_allclose(model, [0, 0], atol=1e-4)


def test_with_a_strong_pull_the_global_model_takes_fed_avgs_steps():
  """lambda (w - theta) is then grad f, and theta is next to w."""
  config = dataclasses.replace(
    _HALF_WAY,
    client_learning_rate=0.3,
    proximal_weight=999.0,
    personal_learning_rate=1e-3,
  )
  before, _, _, _ = _run(2, local_training=config)
  model, thetas, _, _ = _run(3, local_training=config)
  mean = _MEANS[[0, 1, 3]].mean(axis=0)
  np.testing.assert_allclose(model, mean * (1 - 0.7**3), rtol=2e-3)
  np.testing.assert_allclose(
    thetas[[0, 1, 3]], np.tile(before, (3, 1)), atol=0.03
  )


def _second_form(proximal_weight, rate, num_local_steps=1):
  """The options of the form that averages theta, with SGD on full batches."""
  return {
    'averaged': 'personalized',
    'local_training': moreau_envelope.MoreauEnvelopeConfig(
      num_local_steps=num_local_steps,
      batch_size=32,
      client_learning_rate=0.0,
      proximal_weight=proximal_weight,
      num_proximal_steps=1,
      personal_learning_rate=rate,
      start='own',
    ),
  }


def test_second_form_by_hand():
  """theta_i <- theta_i - rate ((theta_i - m_i) + lambda (theta_i - center)); the
  center is the mean of all theta_i, and they go on from their own.
  """
  available, center = [0, 1, 3], np.zeros(2)
  thetas = np.zeros((4, 2))
  for _ in range(3):
    for k in available:
      for _ in range(2):
        pull = thetas[k] - _MEANS[k] + 2.0 * (thetas[k] - center)
        thetas[k] = thetas[k] - 0.1 * pull
    center = thetas[available].mean(axis=0)
  model, found, updates, output = _run(3, **_second_form(2.0, 0.1, 2))
  np.testing.assert_allclose(model, center, rtol=1e-5)
  np.testing.assert_allclose(found, thetas, rtol=1e-5)
  assert updates == [3, 3, 0, 3]
  assert list(output.client_metrics) == ['loss']


@pytest.mark.verify
def test_second_form_almost_without_a_pull_leaves_each_client_alone():
  _, thetas, _, _ = _run(20, **_second_form(1e-9, 0.5, 2))
  np.testing.assert_allclose(thetas, _MEANS, atol=1e-4)


def test_second_form_with_a_strong_pull_keeps_all_near_the_mean():
  """A step leads 1 / (1 + lambda) of the way from the center to m_i, so the center
  takes FedAvg's steps of that rate.
  """
  model, thetas, _, _ = _run(3, **_second_form(99.0, 0.01))
  available = [0, 1, 3]
  mean = _MEANS[available].mean(axis=0)
  np.testing.assert_allclose(model, mean * (1 - 0.99**3), rtol=1e-4)
  center = mean * (1 - 0.99**2)
  np.testing.assert_allclose(
    thetas[available], 0.99 * center + 0.01 * _MEANS[available], rtol=1e-4
  )


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'training_clients': 'some'}, "training_clients must be one of 'all', 'c"),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    ({'averaged': 'theta'}, "averaged must be one of 'local', 'personalized'"),
    ({'server_mixing': 0.0}, 'server_mixing must be a finite number > 0'),
    ({'loss_scale': -1.0}, 'loss_scale must be a finite number > 0, got -1.0'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    pfedme.PFedMeConfig(**options)
