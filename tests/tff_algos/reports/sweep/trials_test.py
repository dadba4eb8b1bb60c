"""Trials of a search: outcomes, order, texts."""

import math

import pytest

from tests.testing import fake_sweep
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import trials

_AXES = (
  plan_lib.Axis('trial', 'trial', (0, 1, 2, 3, 4)),
  plan_lib.Axis('algorithm.weight', 'weight', (0.1, 1.0, 5.0, 7.0, 9.0)),
)
_LEVELS = {(0, 0.1): (0.2, 0.4), (1, 1.0): (0.5, 0.7), (2, 5.0): (0.6, 0.8)}


def _read(tmp_path, *, higher_is_better=True):
  """Two finished trials; of the third the second seed is pruned."""
  plan = fake_sweep.write(tmp_path, _LEVELS, _AXES)
  runs = list(plan.runs)
  runs[5] = runs[5]._replace(pruned_round=3, folder='gone')
  runs.append(plan_lib.PlannedRun('d', (3, 7.0), 0, 'no data'))
  runs.append(plan_lib.PlannedRun('e', (4, 9.0), 0))
  search = plan_lib.Search(
    'participating/test/personalized/accuracy', higher_is_better, 2
  )
  fake_sweep.write_plan(
    tmp_path, plan._replace(runs=tuple(runs), search=search)
  )
  return sweep_lib.read(tmp_path)


def test_outcomes_and_objectives(tmp_path):
  found = trials.read(_read(tmp_path))
  assert [trial.number for trial in found] == [0, 1, 2, 3, 4]
  assert [trial.values for trial in found[:2]] == [(0.1,), (1.0,)]
  assert [trial.outcome for trial in found] == [
    'finished',
    'finished',
    'pruned after round 3 of seed 1',
    'refused: no data',
    'not finished',
  ]
  assert found[0].objective.mean == pytest.approx(0.3)
  assert found[0].objective.std == pytest.approx(0.2 / math.sqrt(2))
  assert found[2].objective.num == 1
  assert found[3].objective.num == 0


@pytest.mark.parametrize(('higher', 'best'), [(True, [1, 0]), (False, [0, 1])])
def test_ranks_of_finished_trials(tmp_path, higher, best):
  sweep = _read(tmp_path, higher_is_better=higher)
  assert [trial.number for trial in trials.ranked(sweep)] == best
  rows = trials.rows(sweep)
  assert [row['trial'] for row in rows] == [*map(str, best), '2', '3', '4']
  assert rows[best.index(0)] == {
    'trial': '0',
    'weight': '0.1',
    'objective': '0.3 ± 0.1414',
    'outcome': 'finished',
  }
  assert rows[3]['objective'] == '–'


def test_a_trial_with_a_seed_that_diverged_is_not_ranked(tmp_path):
  levels = {(0, 0.1): (0.9, math.nan), (1, 1.0): (0.5, 0.7)}
  plan = fake_sweep.write(tmp_path, levels, _AXES)
  search = plan_lib.Search('participating/test/personalized/accuracy', True, 2)
  fake_sweep.write_plan(tmp_path, plan._replace(search=search))
  rows = trials.rows(sweep_lib.read(tmp_path))
  assert [(row['trial'], row['objective'], row['outcome']) for row in rows] == [
    ('1', '0.6 ± 0.1414', 'finished'),
    ('0', '0.9', 'no finite objective of all clients in 1 of 2 seeds'),
  ]


def test_a_trial_with_a_seed_whose_mean_leaves_out_clients_is_not_ranked(
  tmp_path,
):
  name = 'participating/test/personalized/accuracy'
  plan = fake_sweep.write(tmp_path, {(0, 0.1): (0.9, 0.9)}, _AXES)
  search = plan_lib.Search(name, True, 2)
  fake_sweep.write_plan(tmp_path, plan._replace(search=search))
  sweep = sweep_lib.read(tmp_path)
  sweep.cells[0].last[1][f'{name}_num_nan'] = 1.0
  assert not trials.ranked(sweep)
  assert trials.rows(sweep)[0]['outcome'].startswith(
    'no finite objective of all'
  )


def test_text_has_the_best_first(tmp_path):
  lines = trials.text(_read(tmp_path)).splitlines()
  assert lines[0].split() == ['trial', 'weight', 'objective', 'outcome']
  assert lines[1].split() == ['1', '1', '0.6', '±', '0.1414', 'finished']
  assert len(lines) == 6


def test_a_grid_has_no_trials(tmp_path):
  assert trials.rows(fake_sweep.read(tmp_path, _LEVELS, _AXES)) == []
