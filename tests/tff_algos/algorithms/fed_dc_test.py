"""Tests of FedDC, against NumPy and in its reduction."""

import numpy as np
import pytest

from tests.testing import full_batch_rounds as rounds
from tff_algos.algorithms import fed_dc
from tff_algos.core import errors
from tff_algos.numerics import optimizers
from tff_algos.rounds import periods
from tff_algos.stages.client import local_training


def _build(cohort_size=3, **options):
  config = fed_dc.FedDcConfig(
    cohort_size=cohort_size,
    **({'loss_scale': 0.5, 'local_training': rounds.TRAINING} | options),
  )
  return fed_dc.build_fed_dc(rounds.model(), config)


@pytest.mark.parametrize('factor', [1.0, 0.01])
def test_rounds_agree_with_numpy(factor):
  """Also if the rate falls after the second: g_k falls as the rate does."""
  pull = 1.5
  algorithm = periods.in_turn(
    [
      _build(proximal_weight=pull, local_training=rounds.training(rate))
      for rate in (rounds.RATE, factor * rounds.RATE)
    ],
    lambda round_num: int(round_num > 2),
  )
  x = rounds.start(algorithm)
  mean_change = np.zeros(3)
  drifts, changes = np.zeros((5, 3)), np.zeros((5, 3))
  for round_num in (1, 2, 3, 4):
    rate = rounds.RATE * (factor if round_num > 2 else 1)
    if round_num == 3:
      mean_change, changes = factor * mean_change, factor * changes
    sent = []
    clients = rounds.drawn(3, round_num)
    for k in clients:
      slope = (changes[k] - mean_change) / (rounds.NUM_STEPS * rate)
      y = rounds.descend(x, k, slope, pull, x - drifts[k], rate)
      changes[k] = y - x
      drifts[k] += changes[k]
      sent.append(y + drifts[k])
    x = np.mean(sent, axis=0)
    mean_change = np.mean(changes[clients], axis=0)
  state, states, _ = rounds.run(algorithm, 4)
  np.testing.assert_allclose(rounds.vector(state.model_weights), x, rtol=1e-4)
  np.testing.assert_allclose(
    rounds.vector(state.mean_change_per_rate),
    mean_change / rate,
    rtol=1e-3,
    atol=1e-3,
  )
  for ours, drift, change in zip(states, drifts, changes, strict=True):
    np.testing.assert_allclose(
      rounds.vector(ours.drift), drift, rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(
      rounds.vector(ours.change_per_rate), change / rate, rtol=1e-3, atol=1e-3
    )


def test_without_pull_drift_and_correction_it_is_fed_avg_all_clients_alike():
  algorithm = _build(
    proximal_weight=0.0, follows_drift=False, corrects_gradients=False
  )
  x = rounds.start(algorithm)
  for round_num in (1, 2):
    models = [rounds.descend(x, k) for k in rounds.drawn(3, round_num)]
    x = np.mean(models, axis=0)
  state, states, _ = rounds.run(algorithm, 2)
  np.testing.assert_allclose(rounds.vector(state.model_weights), x, rtol=1e-4)
  assert all((one.drift['kernel'] == 0).all() for one in states)


def test_plan_counts_two_models_each_way():
  (call,) = _build().plan_round(None, rounds.SOURCE.population, 1, 0)
  assert call.cost == (18, 18, 3)


def test_other_solvers_than_sgd_are_refused():
  training = local_training.LocalTrainingConfig(
    optimizer=optimizers.OptimizerConfig('adam')
  )
  with pytest.raises(errors.ConfigError, match="got 'adam' and 'descent'"):
    _build(local_training=training)
