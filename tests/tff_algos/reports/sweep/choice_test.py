"""What is chosen among the values of an axis, and by how much."""

import math

import pytest

from tests.testing import fake_sweep, fake_workdir
from tff_algos.core import errors
from tff_algos.reports.sweep import choice
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_KEY = 'algorithm.num_clusters'
_AXIS = plan_lib.Axis(_KEY, 'num_clusters', (1, 2, 3))
_LAW = plan_lib.Axis('law', 'law', ('x', 'y'))


def _sweep(
  folder, validation, axes=(_AXIS,), score='accuracy', metric='validation'
):
  """Returns a sweep; `validation` has a score of each seed, or None for none.

  The better a cell validates, the worse it tests.
  """
  levels = {cell: [0.5] * len(row) for cell, row in validation.items()}
  plan = fake_sweep.write(folder, levels, axes, score=score)
  name = f'{plan_lib.CRITERIA[metric].metric}/{score}'
  test = f'participating/test/personalized/{score}'
  for run in plan.runs:
    value = validation[run.values][run.seed]
    if value is not None:
      point = {name: value, test: 1 - value}
      fake_workdir.change_summary(folder / run.folder, point)
  return sweep_lib.read(folder)


def test_the_best_mean_is_chosen_and_how_far_others_are_behind(tmp_path):
  """Differences of 2: .20, .00 and of 3: .10, .10, seed by seed."""
  sweep = _sweep(
    tmp_path, {(2,): (0.4, 0.8), (3,): (0.5, 0.7), (1,): (0.6, 0.8)}
  )
  assert choice.sentences(sweep, plan_lib.Question(_KEY)) == [
    'num_clusters=1 is the best by the personalized models on validation '
    'examples after the last round: 70.0 ± 14.1 % (2 seeds). Worse on '
    'the same seeds: num_clusters=2 by 10.0 ± 14.1, num_clusters=3 by 10.0 ± '
    '0.0.'
  ]


def test_gaps_of_three_seeds_have_an_interval(tmp_path):
  """Gaps 1, 2, 3 points: 4.303 deviations of 1 / sqrt(3) around 2."""
  sweep = _sweep(tmp_path, {(1,): (0.5, 0.6, 0.7), (2,): (0.49, 0.58, 0.67)})
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert told.endswith(
    'Worse on the same seeds (with the 95 % interval of the mean gap): '
    'num_clusters=2 by 2.0 (-0.5 to 4.5).'
  )


def test_what_diverged_for_some_client_is_not_chosen(tmp_path):
  sweep = _sweep(tmp_path, {(1,): (0.9,), (2,): (0.5,)})
  name = 'participating/validation/personalized/accuracy_num_nan'
  fake_workdir.change_summary(sweep.cells[0].runs[0].workdir, {name: 3})
  sweep = sweep_lib.read(tmp_path)
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert told.startswith('num_clusters=2 is the best')
  assert told.endswith('Diverged in some seed: num_clusters=1.')


def test_attackers_choose_nothing(tmp_path):
  sweep = _sweep(tmp_path, {(1,): (0.4,), (2,): (0.5,)})
  for cell, score in zip(sweep.cells, (0.8, 0.7), strict=True):
    name = 'attack/honest/validation/personalized/accuracy'
    fake_workdir.change_summary(cell.runs[0].workdir, {name: score})
  sweep = sweep_lib.read(tmp_path)
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert told.startswith('num_clusters=1 is the best')
  assert 'round: 80.0 % (1 seed). Worse' in told


def _unfinish(run):
  (run.workdir / 'evaluation' / 'summary.json').unlink()


def test_values_are_compared_on_the_seeds_that_all_have(tmp_path):
  """The first has its best seed only, while the sweep is running."""
  sweep = _sweep(tmp_path, {(1,): (0.6, 0.9, 0.6), (2,): (0.7, 0.95, 0.7)})
  for run in sweep.cells[0].runs[::2]:
    _unfinish(run)
  (told,) = choice.sentences(sweep_lib.read(tmp_path), plan_lib.Question(_KEY))
  assert told == (
    'num_clusters=2 is the best by the personalized models on validation '
    'examples after the last round: 95.0 % (1 seed that all values have). '
    'Worse on the same seeds: num_clusters=1 by 5.0.'
  )


def test_values_without_a_common_seed_are_not_compared(tmp_path):
  sweep = _sweep(tmp_path, {(1,): (0.6, 0.8), (2,): (0.1, 0.5)})
  _unfinish(sweep.cells[0].runs[0])
  _unfinish(sweep.cells[1].runs[1])
  (told,) = choice.sentences(sweep_lib.read(tmp_path), plan_lib.Question(_KEY))
  assert told == f'{_KEY} cannot be selected: no seed has a run of every value.'


def test_what_diverged_in_some_seed_is_not_chosen(tmp_path):
  sweep = _sweep(tmp_path, {(1,): (0.4, 0.6), (2,): (0.9, math.nan)})
  assert choice.sentences(sweep, plan_lib.Question(_KEY)) == [
    'num_clusters=1 is the best by the personalized models on validation '
    'examples after the last round: 50.0 ± 14.1 % (2 seeds). Diverged in some '
    'seed: num_clusters=2.'
  ]
  sweep = _sweep(tmp_path / 'none', {(1,): (math.nan, 0.6)})
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert told.endswith('cannot be selected: every value diverged in some seed.')


def test_a_dataset_without_validation_examples_has_not_diverged(tmp_path):
  sweep = _sweep(tmp_path, {(1,): (math.nan,), (2,): (math.nan,)})
  for cell in sweep.cells:
    for point in cell.last:
      point[f'{plan_lib.CRITERIA["validation"].metric}/accuracy_num_nan'] = 0
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert told.startswith(f'{_KEY} cannot be selected: no dataset has')


def test_the_least_error_is_the_best_and_the_earlier_value_on_a_tie(tmp_path):
  sweep = _sweep(
    tmp_path, {(3,): (2.0,), (2,): (1.0,), (1,): (1.0,)}, score='mse'
  )
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert told.startswith('num_clusters=2 is the best by')
  assert told.endswith('num_clusters=3 by 1.00, num_clusters=1 by 0.000.')


def test_unseen_clients_may_choose(tmp_path):
  validation = {(1,): (0.3,), (2,): (0.9,)}
  sweep = _sweep(tmp_path, validation, metric='unseen')
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY, 'unseen'))
  assert told.startswith('num_clusters=2 is the best by the cluster models')
  (told,) = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert told == (
    f'{_KEY} cannot be selected: no dataset has a validation part '
    '(config.dataset.splits.validation_ratio).'
  )


def test_each_choice_on_the_other_axes_has_its_own(tmp_path):
  values = {
    (1, 'x'): (0.9,),
    (1, 'y'): (0.2,),
    (2, 'x'): (0.1, None),
    (2, 'y'): (0.3,),
  }
  sweep = _sweep(tmp_path, values, (_AXIS, _LAW))
  found = choice.sentences(sweep, plan_lib.Question(_KEY))
  assert [told.partition(' is')[0] for told in found] == [
    'law=x: num_clusters=1',
    'law=y: num_clusters=2',
  ]
  assert found[0].endswith('Worse on the same seeds: num_clusters=2 by 80.0.')


def test_only_an_axis_can_be_chosen(tmp_path):
  sweep = _sweep(tmp_path, {(1,): (0.5,)})
  with pytest.raises(errors.DataError, match=f'--choose=seed .* is {_KEY}'):
    choice.sentences(sweep, plan_lib.Question('seed'))
