"""Runs gathered in cells."""

import math

import numpy as np
import pytest

from tests.testing import fake_sweep, fake_workdir
from tff_algos.core import errors
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_AXES = (plan_lib.Axis('algorithm.weight', 'weight', (0.1, 1.0)),)
_TEST = 'participating/test/personalized/accuracy'


def test_spread_is_mean_and_sample_deviation():
  points = [{'x': 1.0}, {'x': 2.0}, {'x': 6.0}, {'x': math.nan}, {}]
  spread = sweep_lib.spread(points, 'x')
  assert spread == (3.0, pytest.approx(math.sqrt(7)), 3)


def test_of_one_seed_no_deviation_is_known():
  mean, std, num = sweep_lib.spread([{'x': 1.5}], 'x')
  assert (mean, num) == (1.5, 1)
  assert math.isnan(std)
  assert math.isnan(sweep_lib.spread([{}], 'x').mean)


def test_cells_hold_their_seeds(tmp_path):
  sweep = fake_sweep.read(tmp_path, {(0.1,): (0.2, 0.4), (1.0,): (0.3,)}, _AXES)
  assert [cell.label for cell in sweep.cells] == ['weight=0.1', 'weight=1']
  assert [cell.seeds for cell in sweep.cells] == [(0, 1), (0,)]
  assert sweep_lib.spread(sweep.cells[0].last, _TEST).mean == pytest.approx(0.3)
  # The fake's best round is the last but one, of two.
  assert sweep_lib.spread(sweep.cells[0].best, _TEST).mean == pytest.approx(
    0.15
  )
  assert [measure.title for measure in sweep.measures] == [
    *(
      'cluster recovery (ARI)',
      'personalized, test',
      'communication',
    )
  ]


def test_runs_that_are_not_finished_or_were_refused_are_left_out(tmp_path):
  plan = fake_sweep.write(tmp_path, {(0.1,): (0.2, 0.4, 0.6)}, _AXES)
  (tmp_path / plan.runs[1].folder / 'evaluation' / 'summary.json').unlink()
  refused = plan.runs[2]._replace(error='no room')
  fake_sweep.write_plan(tmp_path, plan._replace(runs=(*plan.runs[:2], refused)))
  assert sweep_lib.read(tmp_path).cells[0].seeds == (0,)


def test_without_a_finished_run_the_first_reason_is_told(tmp_path):
  run = plan_lib.PlannedRun('seed_0', (), 0, 'too few digits')
  fake_sweep.write_plan(tmp_path, plan_lib.Plan('x', (), (run,)))
  with pytest.raises(errors.DataError, match='seed_0: too few digits'):
    sweep_lib.read(tmp_path)


def test_accuracy_and_error_are_not_compared(tmp_path):
  plan = fake_sweep.write(tmp_path, {(0.1,): (0.2,)}, _AXES)
  fake_sweep.write_run(tmp_path / 'other', score='mse')
  other = plan_lib.PlannedRun('other', (1.0,), 0)
  fake_sweep.write_plan(tmp_path, plan._replace(runs=(*plan.runs, other)))
  with pytest.raises(errors.DataError, match='different scores.*one task'):
    sweep_lib.read(tmp_path)


def test_rate_has_the_interval_of_wilson(tmp_path):
  plan = fake_sweep.write(tmp_path, {(): (0.1, 0.2, 0.3, 0.4)}, ())
  fake_sweep.write_run(tmp_path / 'bad', ari=0.5)
  bad = plan_lib.PlannedRun('bad', (), 4)
  fake_sweep.write_plan(tmp_path, plan._replace(runs=(*plan.runs, bad)))
  rate = sweep_lib.read(tmp_path).cells[0].rate
  z, p, n = 1.959963985, 4 / 5, 5
  middle = (p + z * z / (2 * n)) / (1 + z * z / n)
  half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + (z / 2 / n) ** 2)
  assert (rate.successes, rate.num) == (4, 5)
  assert (rate.low, rate.high) == pytest.approx((middle - half, middle + half))


def test_runs_of_one_model_are_no_failures(tmp_path):
  plan = fake_sweep.write(tmp_path, {(): (0.1, 0.2, 0.3)}, ())
  for left, run in enumerate(plan.runs, start=1):
    rate = sweep_lib.read(tmp_path).cells[0].rate
    assert (rate.successes, rate.num) == (4 - left, 4 - left)
    fake_workdir.change_summary(tmp_path / run.folder, num_clusters=1)
  assert sweep_lib.read(tmp_path).cells[0].rate is None


def test_curves_are_means_over_the_rounds_that_all_have(tmp_path):
  plan = fake_sweep.write(tmp_path, {(): (0.4,)}, (), num_rounds=4)
  fake_sweep.write_run(tmp_path / 'short', level=0.8, num_rounds=2)
  short = plan_lib.PlannedRun('short', (), 1)
  fake_sweep.write_plan(tmp_path, plan._replace(runs=(*plan.runs, short)))
  cell = sweep_lib.read(tmp_path).cells[0]
  curve = cell.curve(_TEST)
  np.testing.assert_array_equal(curve.rounds, [0, 1, 2])
  np.testing.assert_array_equal(curve.sent, [0, 100, 200])
  np.testing.assert_allclose(curve.mean, [0, (0.1 + 0.4) / 2, (0.2 + 0.8) / 2])
  np.testing.assert_allclose(curve.std, [0, 0.3 / 2**0.5, 0.6 / 2**0.5])
  assert cell.curve('no/such/metric') is None
