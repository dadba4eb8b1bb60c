"""Many runs: what goes on, what stops, what is written."""

import csv
import json

import pytest

from binaries import compare, sweep, sweep_run
from configs.fed_soft import synthetic
from tests.testing import fake_sweep, programs
from tff_algos.core import errors
from tff_algos.experiments.sweeps import grid
from tff_algos.reports.sweep import plan as plan_lib

_BASE = synthetic.get_config('smoke').to_dict()
_SYNTHETIC = str(programs.ROOT / 'configs' / 'fed_soft' / 'synthetic.py')


@pytest.fixture
def made(monkeypatch):
  """Replaces runs by invented ones; returns their seeds, in order."""
  seeds = []

  def make(config, folder, datasets, kept):
    seeds.append(config.seed)
    if config.seed == 1:
      raise errors.PartitionError('184 wanted, 182 exist')
    if config.seed == 3:
      raise errors.InfrastructureError('disk full')
    fake_sweep.write_run(folder, score='mse')
    return True

  monkeypatch.setattr(sweep_run, 'make', make)
  return seeds


def test_a_refused_run_is_told_at_the_end_and_the_others_go_on(tmp_path, made):
  runs = grid.expand({'smoke': _BASE}, [], 3)
  plan = sweep.sweep(runs, tmp_path)
  assert made == [0, 1, 2]
  assert [run.error for run in plan.runs] == ['', '184 wanted, 182 exist', '']
  assert plan_lib.read(tmp_path) == plan
  with pytest.raises(
    errors.UserError, match='1 of 3 runs.*seed_1: 184 wanted, 182 exist'
  ):
    sweep.check_all_ran(plan)
  assert '(2 seeds;' in compare.compare(tmp_path, [], 0.9)


def test_a_failing_machine_stops_the_sweep(tmp_path, made):
  runs = grid.expand({'smoke': _BASE}, [], 5)
  with pytest.raises(errors.InfrastructureError, match='disk full'):
    sweep.sweep(runs, tmp_path)
  assert made == [0, 1, 2, 3]
  assert len(plan_lib.read(tmp_path).runs) == 5


def test_a_sweep_without_a_fault_is_none(tmp_path):
  plan = grid.expand({'smoke': _BASE}, [], 2).plan
  sweep.check_all_ran(plan)


def test_further_configs_get_the_same_overrides():
  found = sweep.bases(
    _BASE,
    f'{_SYNTHETIC}:smoke',
    [':linear', ':random'],
    {'training.num_rounds': 7},
  )
  assert list(found) == ['smoke', 'linear', 'random']
  assert found['smoke'] is _BASE
  assert found['linear']['dataset']['partition']['law'] == 'linear'
  assert found['random']['training']['num_rounds'] == 7


def test_an_override_must_fit_further_configs():
  with pytest.raises(errors.ConfigError, match='linear: --config=x.y'):
    sweep.bases(_BASE, f'{_SYNTHETIC}:smoke', [':linear'], {'x.y': 1})


@pytest.mark.parametrize(
  ('argument', 'words'),
  [
    ('--grid=algorithm.proximal_wait=1', 'proximal_wait'),
    ('--also=configs/no/such.py', "no file 'configs/no/such.py'"),
  ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
  launcher, tmp_path, argument, words
):
  workdir = tmp_path / 'sweep'
  program = launcher.run(
    'binaries.sweep',
    f'--config={_SYNTHETIC}:smoke',
    f'--workdir={workdir}',
    argument,
  )
  assert program.returncode == 1
  (line,) = program.complaints
  assert words in line
  assert not workdir.exists()


@pytest.mark.slow
def test_a_sweep_from_the_shell_is_made_once(launcher, tmp_path):
  arguments = (
    f'--config={_SYNTHETIC}:smoke',
    f'--workdir={tmp_path}',
    '--num_seeds=1',
    '--grid=algorithm.proximal_weight=0.1,10',
    '--config.training.num_rounds=1',
    '--config.dataset.partition.num_clients=4',
    '--config.algorithm.cohort_size_per_cluster=2',
    '--config.algorithm.local_training.num_local_epochs=1',
    '--config.runtime.name=debug',  # It traces no graphs.
  )
  program = launcher.run('binaries.sweep', *arguments)
  assert program.returncode == 0, program.stderr
  assert program.stdout.count('(1 seed; clusters found: ') == 2
  with open(tmp_path / 'sweep.csv', newline='') as file:
    rows = list(csv.DictReader(file))
  assert [(row['algorithm.proximal_weight'], row['seed']) for row in rows] == [
    *(('0.1', '0'), ('10.0', '0'))
  ]
  scores = [row['participating/test/personalized/mse'] for row in rows]
  assert len(set(scores)) == 2
  for row, score in zip(rows, scores, strict=True):
    folder = tmp_path / row['folder']
    content = json.loads((folder / 'config.json').read_text())['config']
    assert content['seed'] == content['dataset']['seed'] == int(row['seed'])
    summary = json.loads((folder / 'evaluation/summary.json').read_text())
    name = 'participating/test/personalized/mse'
    assert summary['last'][name] == float(score)
  # The data are the same for both values, and lie there once.
  assert len(list((tmp_path / 'datasets').iterdir())) == 1
  names = {path.name for path in (tmp_path / 'report').iterdir()}
  assert {'index.html', 'effect_proximal_weight.png', 'cells.png'} <= names
  before = {
    path: path.stat().st_mtime_ns for path in tmp_path.rglob('summary.json')
  }
  again = launcher.run('binaries.sweep', *arguments)
  assert again.stderr.count('It was finished before.') == 2
  assert again.stdout == program.stdout
  assert before == {path: path.stat().st_mtime_ns for path in before}
