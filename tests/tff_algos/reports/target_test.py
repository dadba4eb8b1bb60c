"""Numbers sent until a score is reached, of runs with 100 numbers a round."""

import math

import pytest

from tests.testing import fake_sweep
from tff_algos.core import errors
from tff_algos.reports import plan as plan_lib
from tff_algos.reports import run as run_lib
from tff_algos.reports import sweep as sweep_lib
from tff_algos.reports import sweep_table
from tff_algos.reports import target as target_lib

_TEST = 'participating/test/personalized/accuracy'


def _sent(folder, value, metric=_TEST, **options):
  fake_sweep.write_run(folder, **({'level': 0.8, 'num_rounds': 4} | options))
  found = target_lib.sent_until(
    run_lib.read(folder), target_lib.Target(metric, value)
  )
  # Nothing is sent down.
  assert found.get(target_lib.UPLINK) == found.get(target_lib.TOTAL) or (
    math.isnan(found[target_lib.UPLINK])
  )
  return found.get(target_lib.UPLINK)


@pytest.mark.parametrize(
  ('value', 'sent'),
  # 0, 0.2, 0.4, 0.6, 0.8 after 0, 100, 200, 300, 400 numbers.
  [(0.0, 0), (0.2, 100), (0.5, 250), (0.3, 150), (0.8, 400)],
)
def test_numbers_between_evaluations_run_straight(tmp_path, value, sent):
  assert _sent(tmp_path / 'run', value) == pytest.approx(sent)


def test_a_target_that_is_not_reached_costs_nobody_knows_what(tmp_path):
  assert math.isnan(_sent(tmp_path / 'run', 0.81))


def test_an_error_is_to_fall(tmp_path):
  """It is 0, then 0.2 and more, so it is below 0.1 from the start."""
  name = 'participating/test/personalized/mse'
  assert _sent(tmp_path / 'run', 0.1, name, score='mse') == 0


def test_a_metric_that_is_missing_says_nothing(tmp_path):
  assert _sent(tmp_path / 'run', 0.1, 'no/such') is None


def test_a_sweep_tells_it_by_cell(tmp_path):
  """Of levels 0.8 and 0.4 in two rounds, 0.3 is reached after 75 and 150."""
  axes = (plan_lib.Axis('algorithm.weight', 'weight', (0.1,)),)
  fake_sweep.write(tmp_path, {(0.1,): (0.8, 0.4)}, axes)
  target = target_lib.parse(f'{_TEST}=0.3')
  sweep = sweep_lib.read(tmp_path, target)
  (row,) = sweep_table.cell_rows(sweep, 0.9)
  assert row[f'{target_lib.UPLINK} mean'] == pytest.approx((75 + 150) / 2)
  assert row[f'{target_lib.UPLINK} num'] == 2
  titles = [measure.title for measure in sweep.measures]
  assert titles[-2:] == [
    f'sent up until {_TEST} = 0.3',
    f'sent both ways until {_TEST} = 0.3',
  ]
  assert target_lib.UPLINK in sweep_table.console(sweep, (), 0.9)


@pytest.mark.parametrize(
  'text', ['0.5', 'accuracy', 'accuracy=', 'x=nan', '=1']
)
def test_other_words_are_refused(text):
  with pytest.raises(errors.ConfigError, match='must be METRIC=VALUE'):
    target_lib.parse(text)
