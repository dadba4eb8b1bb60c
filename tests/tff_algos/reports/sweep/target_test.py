"""What is spent until a score is reached, by runs with 100 numbers a round."""

import math

import pytest

from tests.testing import fake_sweep
from tff_algos.core import errors
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import sweep_table
from tff_algos.reports.sweep import target as target_lib

_TEST = 'participating/test/personalized/accuracy'


def _sent(folder, value, metric=_TEST, *, is_share=False, **options):
  options = {'level': 0.8, 'num_rounds': 4} | options
  run = fake_sweep.read_run(folder, **options)
  found = target_lib.spent_until(
    run, target_lib.Target(metric, value, is_share)
  )
  total = found.get(target_lib.TOTAL)
  if found:
    # Of the 100 numbers of a round 40 are sent up.
    assert found == pytest.approx(
      {
        target_lib.ROUNDS: total / 100,
        target_lib.UPLINK: total * 0.4,
        target_lib.TOTAL: total,
      },
      nan_ok=True,
    )
  return total


@pytest.mark.parametrize(
  ('value', 'sent'),
  # 0, 0.2, 0.4, 0.6, 0.8 after 0, 100, 200, 300, 400 numbers.
  [(0.0, 0), (0.2, 100), (0.5, 250), (0.3, 150), (0.8, 400)],
)
def test_numbers_between_evaluations_run_straight(tmp_path, value, sent):
  assert _sent(tmp_path / 'run', value) == pytest.approx(sent)


def test_a_target_that_is_not_reached_costs_nobody_knows_what(tmp_path):
  assert math.isnan(_sent(tmp_path / 'run', 0.81))


def test_a_share_is_of_what_the_run_itself_ends_with(tmp_path):
  """0.95 * 0.8 = 0.76 after 380 numbers; half of 0.4 after 200."""
  one = _sent(tmp_path / 'one', 0.95, is_share=True)
  assert one == pytest.approx(380)
  other = _sent(tmp_path / 'other', 0.5, is_share=True, level=0.4)
  assert other == pytest.approx(200)


@pytest.mark.parametrize('last', ['nan', '-0.2'])
def test_a_share_of_a_final_value_that_is_no_scale_is_not_reached(
  tmp_path, last
):
  """Half of -0.2 would be more than it."""
  run = fake_sweep.read_run(tmp_path, level=0.8, num_rounds=4)
  run.rounds.columns[_TEST] = ('0.0', '0.2', '0.4', last, last)
  found = target_lib.spent_until(run, target_lib.Target(_TEST, 0.5, True))
  assert len(found) == 3 and all(map(math.isnan, found.values()))
  # A value is reached before.
  found = target_lib.spent_until(run, target_lib.Target(_TEST, 0.2))
  assert found[target_lib.ROUNDS] == 1


def test_a_mean_that_leaves_out_clients_reaches_nothing(tmp_path):
  """0.9 in round 2 is of who is left; 0.6 of all follows in round 3."""
  run = fake_sweep.read_run(tmp_path, level=0.8, num_rounds=4)
  run.rounds.columns[_TEST] = ('0.0', '0.2', '0.9', '0.6', '0.8')
  run.rounds.columns[f'{_TEST}_num_nan'] = ('0', '0', '2', '0', '1')
  found = target_lib.spent_until(run, target_lib.Target(_TEST, 0.6))
  assert found[target_lib.ROUNDS] == 3
  found = target_lib.spent_until(run, target_lib.Target(_TEST, 0.5, True))
  assert len(found) == 3 and all(map(math.isnan, found.values()))


def test_of_an_error_a_share_is_more_than_the_end(tmp_path):
  """It rises from 0 to 0.8, and all of it is below 0.8 / 0.95."""
  name = 'participating/test/personalized/mse'
  found = _sent(tmp_path / 'run', 0.95, name, is_share=True, score='mse')
  assert found == 0
  title = target_lib.Target(name, 0.95, is_share=True).measures[0].title
  assert title == f'rounds until 105.3 % of the last {name}'


def test_an_error_is_to_fall(tmp_path):
  """It is 0, then 0.2 and more, so it is below 0.1 from the start."""
  name = 'participating/test/personalized/mse'
  assert _sent(tmp_path / 'run', 0.1, name, score='mse') == 0


def test_a_metric_that_is_missing_says_nothing(tmp_path):
  assert _sent(tmp_path / 'run', 0.1, 'no/such') is None


def test_a_sweep_tells_it_by_cell(tmp_path):
  """Of levels 0.8 and 0.4 in two rounds, 0.3 is reached after 0.75 and 1.5."""
  axes = (plan_lib.Axis('algorithm.weight', 'weight', (0.1,)),)
  fake_sweep.write(tmp_path, {(0.1,): (0.8, 0.4)}, axes)
  target = target_lib.parse(f'{_TEST}=0.3')
  sweep = sweep_lib.read(tmp_path, target)
  (row,) = sweep_table.cell_rows(sweep)
  assert row[f'{target_lib.UPLINK} mean'] == pytest.approx((30 + 60) / 2)
  assert row[f'{target_lib.UPLINK} num'] == 2
  titles = [measure.title for measure in sweep.measures]
  assert titles[-3:] == [
    f'rounds until {_TEST} = 0.3',
    f'sent up until {_TEST} = 0.3',
    f'sent both ways until {_TEST} = 0.3',
  ]
  assert target_lib.UPLINK in sweep_table.console(sweep, ())


def test_percentages_are_shares():
  assert target_lib.parse('a/b=95%') == target_lib.Target('a/b', 0.95, True)
  assert target_lib.parse('a/b=0.95') == target_lib.Target('a/b', 0.95)
  (rounds, *_) = target_lib.parse('a/b=95%').measures
  assert rounds.title == 'rounds until 95 % of the last a/b'


@pytest.mark.parametrize(
  'text',
  [
    *('0.5', 'accuracy', 'accuracy=', 'x=nan', '=1'),
    *('x=0%', 'x=101%', 'x=%', 'x=nan%', '=95%'),
  ],
)
def test_other_words_are_refused(text):
  with pytest.raises(errors.ConfigError, match='must be METRIC=VALUE'):
    target_lib.parse(text)
