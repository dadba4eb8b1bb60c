"""Sweeps as a program."""

import csv
import json

import pytest

from tests.testing import programs

_SYNTHETIC = str(programs.ROOT / 'configs' / 'fed_soft' / 'synthetic.py')


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
    'binaries.sweep',
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
  program = launcher.run('tests.testing.unrendered', *arguments)
  assert program.returncode == 0, program.stderr
  assert program.stdout.count('(1 seed; clusters found (95 % interval): ') == 2
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
  again = launcher.run('tests.testing.unrendered', *arguments)
  assert again.stderr.count('It was finished before.') == 2
  assert again.stdout == program.stdout
  assert before == {path: path.stat().st_mtime_ns for path in before}
