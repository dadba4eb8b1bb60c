"""Tables and page of runs that are there."""

import csv
import math

import pytest

from binaries import compare
from tests.testing import fake_sweep
from tff_algos.core import errors
from tff_algos.evaluation import round_time
from tff_algos.reports.run.plots import time_curves_plot
from tff_algos.reports.sweep import choice
from tff_algos.reports.sweep import plan as plan_lib

_AXES = (plan_lib.Axis('algorithm.weight', 'weight', (0.1, 1.0)),)
_TEST = 'participating/test/personalized/accuracy'


def _read(path):
  with open(path, newline='') as file:
    return list(csv.DictReader(file))


def test_a_sweep_gets_its_tables_and_its_page(tmp_path):
  levels = {(0.1,): (0.2, 0.4), (1.0,): (0.3,)}
  fake_sweep.write(tmp_path, levels, _AXES)
  text = compare.compare(tmp_path, [], 0.9)
  assert 'weight=0.1  (2 seeds; clusters found: 2 of 2' in text
  runs = _read(tmp_path / 'sweep.csv')
  assert [float(row[_TEST]) for row in runs] == pytest.approx([0.2, 0.4, 0.3])
  cells = _read(tmp_path / 'sweep_summary.csv')
  assert [row['num_runs'] for row in cells] == ['2', '1']
  std = 0.2 / math.sqrt(2)
  assert float(cells[0][f'{_TEST} std']) == pytest.approx(std)
  assert (tmp_path / 'report' / 'index.html').is_file()


def test_what_is_chosen_is_printed_and_on_the_page(tmp_path):
  levels = {(0.1,): (0.2, 0.4), (1.0,): (0.3,)}
  fake_sweep.write(tmp_path, levels, _AXES)
  question = choice.Question('algorithm.weight')
  text = compare.compare(tmp_path, [], 0.9, question)
  page = (tmp_path / 'report' / 'index.html').read_text()
  told = 'there is nothing to choose algorithm.weight by'
  assert text.splitlines()[-1].startswith(told)
  assert f'<p>{told}' in page
  compare.compare(tmp_path, [], 0.9)
  assert 'Chosen' not in (tmp_path / 'report' / 'index.html').read_text()


def test_the_clock_of_the_picture_of_time_can_be_set(tmp_path, monkeypatch):
  fake_sweep.write(tmp_path, {(0.1,): (0.2,), (1.0,): (0.3,)}, _AXES)
  clock, seen = round_time.Clock(rates=(5e5,)), []
  monkeypatch.setattr(
    time_curves_plot,
    'draw_sweep',
    lambda sweep: seen.extend(run.clock for run in sweep.cells[0].runs),
  )
  compare.compare(tmp_path, [], 0.9, clock=clock)
  assert seen == [clock]


def test_seeds_side_by_side_are_one_cell(tmp_path, monkeypatch):
  for name in ('fed_soft/seed_0', 'fed_soft/seed_3', 'ifca', 'no_run.txt'):
    (tmp_path / 'runs' / name).mkdir(parents=True)
  monkeypatch.chdir(tmp_path)
  plan = compare.plan_of_folders(
    ['runs/fed_soft/seed_*', 'runs/if*'], 'runs/compared'
  )
  assert plan.axes[0].values == ('fed_soft', 'ifca')
  assert [(run.folder, run.values, run.seed) for run in plan.runs] == [
    ('../fed_soft/seed_0', ('fed_soft',), 0),
    ('../fed_soft/seed_3', ('fed_soft',), 3),
    ('../ifca', ('ifca',), 0),
  ]


def test_absolute_patterns_and_files_between(tmp_path):
  for name in ('seed_0', 'seed_1'):
    (tmp_path / name).mkdir()
  (tmp_path / 'seed_2').write_text('a file')
  plan = compare.plan_of_folders([f'{tmp_path}/seed_*'], tmp_path / 'new')
  assert [run.folder for run in plan.runs] == ['../seed_0', '../seed_1']


def test_a_pattern_without_a_folder_is_refused(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.DataError, match=r'--runs=runs/\* matches no'):
    compare.plan_of_folders(['runs/*'], 'compared')
