"""Tests of SCAFFOLD, against NumPy, its invariant and its reduction."""

import numpy as np
import pytest

from tests.testing import full_batch_rounds as rounds
from tff_algos.algorithms import scaffold
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training


def _build(cohort_size=3, **options):
  config = scaffold.ScaffoldConfig(
    cohort_size=cohort_size,
    **({'loss_scale': 0.5, 'local_training': rounds.TRAINING} | options),
  )
  return scaffold.build_scaffold(rounds.model(), config)


@pytest.mark.parametrize('momentum', [0.0, 0.5])
def test_rounds_agree_with_numpy(momentum):
  """Of two steps the second goes 1 + momentum times as far as the first."""
  algorithm = _build(
    server_learning_rate=0.7,
    local_training=rounds.training(rounds.RATE, momentum),
  )
  x = rounds.start(algorithm)
  control, controls = np.zeros(3), np.zeros((5, 3))
  for round_num in (1, 2, 3):
    models, changes = [], []
    for k in rounds.drawn(3, round_num):
      slope = control - controls[k]
      y = rounds.descend(x, k, slope, momentum=momentum)
      own = (x - y) / ((2 + momentum) * rounds.RATE) - slope
      changes.append(own - controls[k])
      controls[k] = own
      models.append(y)
    x = x + 0.7 * (np.mean(models, axis=0) - x)
    control = control + 3 / 4 * np.mean(changes, axis=0)
  state, states, _ = rounds.run(algorithm, 3)
  np.testing.assert_allclose(rounds.vector(state.model_weights), x, rtol=1e-4)
  np.testing.assert_allclose(
    rounds.vector(state.control_sum), 4 * control, rtol=1e-3, atol=1e-5
  )
  for ours, expected in zip(states, controls, strict=True):
    np.testing.assert_allclose(
      rounds.vector(ours.control), expected, rtol=1e-3, atol=1e-5
    )


def test_the_sum_of_the_controls_holds_with_newcomers(tmp_path):
  """Of clients that never took part, too."""
  state, states = rounds.run_with_newcomers(_build(2), tmp_path)
  total = np.sum([rounds.vector(one.control) for one in states], axis=0)
  np.testing.assert_allclose(
    rounds.vector(state.control_sum), total, rtol=1e-4, atol=1e-6
  )
  assert np.abs(total).max() > 0.01


def test_the_first_round_is_that_of_fed_avg_all_clients_alike():
  algorithm = _build(4)
  x = rounds.start(algorithm)
  state, _, _ = rounds.run(algorithm, 1)
  models = [rounds.descend(x, k) for k in np.flatnonzero(rounds.SIZES)]
  np.testing.assert_allclose(
    rounds.vector(state.model_weights), np.mean(models, axis=0), rtol=1e-4
  )


@pytest.mark.verify
def test_drift_disappears_where_fed_avg_stops_beside_the_minimum():
  """With everybody, x goes to the minimum of the mean of f_k."""
  source_minimum = rounds.minimum()
  training = local_training.LocalTrainingConfig(
    5, 32, optimizers.OptimizerConfig('sgd', 0.1)
  )
  state, _, _ = rounds.run(_build(4, local_training=training), 60)
  np.testing.assert_allclose(
    rounds.vector(state.model_weights), source_minimum, atol=2e-3
  )


def test_plan_counts_two_models_each_way():
  (call,) = _build().plan_round(None, rounds.SOURCE.population, 1, 0)
  assert call.cost == (18, 18, 3)


@pytest.mark.parametrize(
  'training',
  [
    {'optimizer': optimizers.OptimizerConfig('adam')},
    {'solver': 'exact'},
  ],
)
def test_other_solvers_than_sgd_are_refused(training):
  text = "must have optimizer 'sgd' and solver 'descent', got"
  with pytest.raises(errors.ConfigError, match=text):
    _build(local_training=local_training.LocalTrainingConfig(**training))
