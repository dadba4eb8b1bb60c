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
  """Also if the rate falls after the second round: controls are gradients."""
  pull = 1.5
  algorithm = periods.in_turn(
    [
      _build(proximal_weight=pull, local_training=rounds.training(rate))
      for rate in (rounds.RATE, factor * rounds.RATE)
    ],
    lambda round_num: int(round_num > 2),
  )
  x = rounds.start(algorithm)
  control = np.zeros(3)
  drifts, controls = np.zeros((5, 3)), np.zeros((5, 3))
  for round_num in (1, 2, 3, 4):
    rate = rounds.RATE * (factor if round_num > 2 else 1)
    models, before = [], controls.copy()
    for k in rounds.drawn(3, round_num):
      slope = control - controls[k]
      y = rounds.descend(x, k, slope, pull, x - drifts[k], rate)
      controls[k] += (x - y) / (rounds.NUM_STEPS * rate) - control
      drifts[k] += y - x
      models.append(y)
    # Four of the five clients have examples.
    x = np.mean(models, axis=0) + drifts.sum(axis=0) / 4
    control = control + (controls - before).sum(axis=0) / 4
  state, states, _ = rounds.run(algorithm, 4)
  np.testing.assert_allclose(rounds.vector(state.model_weights), x, rtol=1e-4)
  for name, kept in (('drift', drifts), ('control', controls)):
    total = rounds.vector(getattr(state, f'{name}_sum'))
    np.testing.assert_allclose(total, kept.sum(axis=0), rtol=1e-3, atol=1e-4)
    for ours, expected in zip(states, kept, strict=True):
      np.testing.assert_allclose(
        rounds.vector(getattr(ours, name)), expected, rtol=1e-3, atol=1e-4
      )


def test_the_sums_of_drifts_and_controls_hold_with_newcomers(tmp_path):
  """Of clients that never took part, too."""
  state, states = rounds.run_with_newcomers(_build(2), tmp_path)
  for name in ('drift', 'control'):
    kept = [rounds.vector(getattr(one, name)) for one in states]
    total = rounds.vector(getattr(state, f'{name}_sum'))
    np.testing.assert_allclose(
      total, np.sum(kept, axis=0), rtol=1e-4, atol=1e-6
    )
    assert np.abs(total).max() > 0.01


def test_plan_counts_two_models_each_way():
  (call,) = _build().plan_round(None, rounds.SOURCE.population, 1, 0)
  assert call.cost == (18, 18, 3)


def test_other_solvers_than_sgd_are_refused():
  training = local_training.LocalTrainingConfig(
    optimizer=optimizers.OptimizerConfig('adam')
  )
  with pytest.raises(errors.ConfigError, match="got 'adam' and 'descent'"):
    _build(local_training=training)
