"""Which attack hurts each cell most."""

import math

from tests.testing import fake_sweep, fake_workdir
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import sweep_page, worst_attack

_ATTACKS = plan_lib.Axis(worst_attack.KEY, 'name', ('none', 'zero', 'ipm'))
_RULES = plan_lib.Axis('algorithm.aggregation.rule', 'rule', ('mean', 'median'))


def _sweep(folder, levels, axes=(_ATTACKS, _RULES), score='accuracy'):
  """Levels are those of all clients; honest ones have 0.1 more where attacked."""
  plan = fake_sweep.write(folder, levels, axes, score=score)
  for run in plan.runs:
    if 'none' not in run.values:
      level = levels[run.values][run.seed]
      name = f'attack/honest/test/personalized/{score}'
      fake_workdir.change_summary(folder / run.folder, {name: level + 0.1})
  return sweep_lib.read(folder)


def test_the_lowest_mean_of_honest_clients(tmp_path):
  sweep = _sweep(
    tmp_path,
    {
      ('none', 'mean'): (0.8, 0.9),
      ('zero', 'mean'): (0.6, 0.6),
      ('ipm', 'mean'): (0.0, 0.2),
      ('none', 'median'): (0.5, 0.5),
      ('zero', 'median'): (0.7, 0.7),
    },
  )
  assert worst_attack.table(sweep) == worst_attack.Table(
    ('none', 'zero', 'ipm'),
    (
      worst_attack.Row(
        'rule=mean',
        ('85.0 ± 7.1', '70.0 ± 0.0', '20.0 ± 14.1'),
        '20.0 ± 14.1',
        'ipm',
      ),
      worst_attack.Row(
        'rule=median', ('50.0 ± 0.0', '80.0 ± 0.0', '–'), '50.0 ± 0.0', 'none'
      ),
    ),
  )
  assert worst_attack.sentences(sweep)[0] == (
    'rule=mean: 20.0 ± 14.1 % for honest clients under their worst attack, ipm.'
  )


def test_the_largest_error_is_the_worst(tmp_path):
  levels = {('zero',): (1.0,), ('ipm',): (3.0,)}
  sweep = _sweep(tmp_path, levels, (_ATTACKS,), 'mse')
  assert worst_attack.sentences(sweep) == [
    'all runs: 3.10 for honest clients under their worst attack, ipm.'
  ]


def test_an_attack_under_which_seeds_diverge_is_the_worst(tmp_path):
  """Not the scores of its attackers, nor of the seeds that did not."""
  sweep = _sweep(
    tmp_path,
    {
      ('none', 'mean'): (0.8, 0.9),
      ('zero', 'mean'): (math.nan, 0.8),
      ('ipm', 'mean'): (math.nan, math.nan),
      ('none', 'median'): (0.8, 0.9),
      ('zero', 'median'): (0.1, 0.1),
      ('ipm', 'median'): (0.7, math.inf),
    },
  )
  for run in sweep.cells[2].runs:
    run.summary['last']['participating/test/personalized/accuracy'] = 0.5
  assert worst_attack.table(sweep).rows == (
    worst_attack.Row(
      'rule=mean',
      ('85.0 ± 7.1', 'diverged (1 of 2 seeds)', 'diverged (2 of 2 seeds)'),
      'diverged (2 of 2 seeds)',
      'ipm',
    ),
    worst_attack.Row(
      'rule=median',
      ('85.0 ± 7.1', '20.0 ± 0.0', 'diverged (1 of 2 seeds)'),
      'diverged (1 of 2 seeds)',
      'ipm',
    ),
  )
  assert worst_attack.sentences(sweep)[1] == (
    'rule=median: diverged (1 of 2 seeds) for honest clients under their worst '
    'attack, ipm.'
  )


def test_a_mean_that_leaves_out_clients_diverged(tmp_path):
  levels = {('zero',): (0.9, 0.9), ('ipm',): (0.1, 0.1)}
  sweep = _sweep(tmp_path, levels, (_ATTACKS,))
  name = 'attack/honest/test/personalized/accuracy_num_nan'
  sweep.cells[0].runs[1].summary['last'][name] = 3
  assert worst_attack.table(sweep).rows[0].attack == 'zero'
  assert worst_attack.sentences(sweep)[0].startswith(
    'all runs: diverged (1 of 2 seeds)'
  )


def test_without_test_examples_there_is_no_table(tmp_path):
  levels = {('none',): (math.nan,), ('zero',): (math.nan,)}
  assert worst_attack.table(_sweep(tmp_path, levels, (_ATTACKS,))) is None


def test_runs_that_differ_by_something_else_have_none(tmp_path):
  sweep = _sweep(tmp_path, {('mean',): (0.5,)}, (_RULES,))
  assert worst_attack.table(sweep) is None
  assert worst_attack.sentences(sweep) == []


def test_the_page_has_the_table(tmp_path):
  levels = {('zero', 'mean'): (0.6,), ('ipm', 'mean'): (0.2,)}
  sweep = _sweep(tmp_path, levels)
  text = sweep_page.write_report(sweep).read_text()
  cells = [
    f'<td>{one}</td>' for one in ('rule=mean', '70.0', '30.0', '30.0 (ipm)')
  ]
  place = -1
  for cell in cells:
    place = text.index(cell, place + 1)
