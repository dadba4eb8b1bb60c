"""Tests of FedDyn, against NumPy, and in its fixed point."""

import numpy as np
import pytest

from tests.testing import full_batch_rounds as rounds
from tff_algos.algorithms import fed_dyn
from tff_algos.core import errors
from tff_algos.stages.client import local_training


def _build(cohort_size=3, **options):
  config = fed_dyn.FedDynConfig(
    cohort_size=cohort_size,
    **({'loss_scale': 0.5, 'local_training': rounds.TRAINING} | options),
  )
  return fed_dyn.build_fed_dyn(rounds.model(), config)


def test_rounds_agree_with_numpy():
  pull = 2.0
  algorithm = _build(proximal_weight=pull)
  x = rounds.start(algorithm)
  mean_gradient, gradients = np.zeros(3), np.zeros((5, 3))
  for round_num in (1, 2, 3):
    models = []
    for k in rounds.drawn(3, round_num):
      y = rounds.descend(x, k, slope=-gradients[k], pull=pull, center=x)
      gradients[k] -= pull * (y - x)
      models.append(y)
    mean_gradient -= pull / 4 * np.sum(np.array(models) - x, axis=0)
    x = np.mean(models, axis=0) - mean_gradient / pull
  state, states, _ = rounds.run(algorithm, 3)
  np.testing.assert_allclose(rounds.vector(state.model_weights), x, rtol=1e-4)
  np.testing.assert_allclose(
    rounds.vector(state.gradient_sum), 4 * mean_gradient, rtol=1e-3, atol=1e-5
  )
  for ours, expected in zip(states, gradients, strict=True):
    np.testing.assert_allclose(
      rounds.vector(ours.gradient), expected, rtol=1e-3, atol=1e-5
    )


def test_the_sum_of_the_gradients_holds_with_newcomers(tmp_path):
  """Of clients that never took part, too."""
  algorithm = _build(2, proximal_weight=2.0)
  state, states = rounds.run_with_newcomers(algorithm, tmp_path)
  total = np.sum([rounds.vector(one.gradient) for one in states], axis=0)
  np.testing.assert_allclose(
    rounds.vector(state.gradient_sum), total, rtol=1e-3, atol=1e-5
  )


@pytest.mark.verify
def test_exact_solves_lead_to_the_minimum_of_the_mean_loss():
  """FedAvg with exact solves stops at the mean of the clients' minima."""
  training = local_training.LocalTrainingConfig(solver='exact')
  algorithm = _build(4, proximal_weight=1.0, local_training=training)
  state, states, _ = rounds.run(algorithm, 40)
  minimum = rounds.minimum()
  np.testing.assert_allclose(
    rounds.vector(state.model_weights), minimum, atol=1e-3
  )
  for k in np.flatnonzero(rounds.SIZES):
    np.testing.assert_allclose(
      rounds.vector(states[k].gradient), rounds.gradient(minimum, k), atol=5e-3
    )


def test_plan_counts_the_cost():
  (call,) = _build().plan_round(None, rounds.SOURCE.population, 1, 0)
  assert call.cost == (9, 9, 3)


def test_a_pull_of_zero_is_refused():
  text = 'proximal_weight must be a finite number > 0'
  with pytest.raises(errors.ConfigError, match=text):
    _build(proximal_weight=0.0)
