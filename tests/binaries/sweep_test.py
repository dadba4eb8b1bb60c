"""Sweeps as a program."""

import json
import re
import signal

import distributed
import psutil
import pytest

from tests.testing import csv_files, patience, programs

_SYNTHETIC = str(programs.ROOT / 'configs' / 'fed_soft' / 'synthetic.py')


@pytest.mark.parametrize(
  ('argument', 'words'),
  [
    ('--also=configs/no/such.py', "no file 'configs/no/such.py'"),
    ('--parallel=2 --dask=127.0.0.1:8786', 'exclude each other'),
    ('--dask=127.0.0.1', 'must be HOST:PORT'),
    ('--search=optuna', '--search=optuna and --ranges=FILE need each other'),
    ('--ranges=a.json', '--search=optuna and --ranges=FILE need each other'),
    ('--search=optuna --ranges=a.json --also=:random', 'has no axes'),
    ('--search=optuna --ranges=a.json --choose=seed', 'Leave --choose out'),
    ('--search=optuna --ranges=a.json', '--ranges=a.json cannot be read'),
    ('--num_trials=3', '--num_trials=3 is the number of trials of a search'),
    ('--choose_by=unseen', '--choose_by=unseen is the criterion of --choose'),
    ('--config.seed=7', '--config.seed: --num_seeds sets the seeds'),
    ('--config.dataset.seed=7', '--config.dataset.seed: --num_seeds sets the'),
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
    *argument.split(),
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
  rows = csv_files.read(tmp_path / 'sweep.csv')
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


@pytest.mark.slow
def test_a_refused_run_is_told_before_a_metric_that_is_not_there(
  launcher, tmp_path
):
  program = launcher.run(
    'tests.testing.unrendered',
    'binaries.sweep',
    f'--config={_SYNTHETIC}:smoke',
    f'--workdir={tmp_path}',
    '--num_seeds=1',
    '--grid=algorithm.cohort_size_per_cluster=2,9',
    '--metrics=no/such',
    '--config.training.num_rounds=1',
    '--config.dataset.partition.num_clients=4',
    '--config.algorithm.local_training.num_local_epochs=1',
    '--config.runtime.name=debug',
  )
  assert program.returncode == 1
  assert '1 of 2 runs were refused' in program.complaints[-1]
  assert (tmp_path / 'sweep.csv').is_file()


_GRID = (
  f'--config={_SYNTHETIC}:smoke',
  '--num_seeds=2',
  '--grid=algorithm.proximal_weight=0.1,10',
  '--config.training.num_rounds=12',
  '--config.dataset.partition.num_clients=6',
  '--config.algorithm.cohort_size_per_cluster=2',
)


def _content(workdir):
  """Returns all files of a sweep, without what the clock says."""
  found = {}
  for path in workdir.rglob('*'):
    name = str(path.relative_to(workdir))
    # Records have the hashes of metrics.csv.
    if path.is_dir() or 'tensorboard' in name or path.name == 'records.json':
      continue
    content = path.read_bytes()
    if path.name == 'metrics.csv':
      content = [{**row, 'seconds': ''} for row in csv_files.read(path)]
    elif path.name == 'index.html':
      content = re.sub(rb'and [0-9.]+ s', b'', content)
    found[name] = content
  return found


@pytest.fixture(scope='module')
def one_after_the_other(launcher, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('sweep')
  program = launcher.run('binaries.sweep', *_GRID, f'--workdir={workdir}')
  assert program.returncode == 0, program.stderr
  return _content(workdir)


@pytest.mark.verify
@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_side_by_side_interrupted_and_resumed_is_the_same(
  launcher, tmp_path, one_after_the_other, signum
):
  workdir = tmp_path / 'sweep'
  arguments = ('binaries.sweep', *_GRID, f'--workdir={workdir}', '--parallel=2')
  program = launcher.start(*arguments)
  patience.until(
    lambda: len([*workdir.rglob('metrics.csv')]) == 2, 240, [program]
  )
  assert len(_runs_of(program)) == 2
  program.send_signal(signum)
  assert program.wait().returncode == 128 + signum
  _check_nothing_is_left(program, workdir)
  program = launcher.run(*arguments)
  assert program.returncode == 0, program.stderr
  assert ' ended, 0 running, ' in program.stderr
  _check_nothing_is_left(program, workdir)
  assert _content(workdir) == one_after_the_other


@pytest.mark.verify
def test_a_run_that_is_killed_is_told_and_made_by_the_next_sweep(
  launcher, tmp_path, one_after_the_other
):
  workdir = tmp_path / 'sweep'
  arguments = ('binaries.sweep', *_GRID, f'--workdir={workdir}', '--parallel=2')
  program = launcher.start(*arguments)
  patience.until(lambda: [*workdir.rglob('metrics.csv')], 240, [program])
  _runs_of(program)[0].kill()
  assert program.wait().returncode == 1
  assert '1 of 4 runs were refused' in program.stderr
  assert 'SIGKILL' in program.stderr
  program = launcher.run(*arguments)
  assert program.returncode == 0, program.stderr
  assert program.stderr.count('was finished before') == 3
  assert _content(workdir) == one_after_the_other


@pytest.mark.verify
def test_a_dask_cluster_makes_the_same(
  launcher, tmp_path, monkeypatch, one_after_the_other
):
  workdir = tmp_path / 'sweep'
  monkeypatch.setenv('TMPDIR', str(tmp_path))
  with distributed.LocalCluster(
    n_workers=2,
    threads_per_worker=1,
    host='127.0.0.1',
    dashboard_address=None,
  ) as cluster:
    program = launcher.start(
      'binaries.sweep',
      *_GRID,
      f'--workdir={workdir}',
      f'--dask={cluster.scheduler_address}',
    )
    patience.until(
      lambda: len([*workdir.rglob('metrics.csv')]) == 2, 240, [program]
    )
    # Another worker resumes the run of one that is lost.
    with distributed.Client(cluster, set_as_default=False) as client:
      pid = next(iter(client.run(_pid).values()))
    psutil.Process(pid).kill()
    assert program.wait(900.0).returncode == 0, program.stderr
  assert _content(workdir) == one_after_the_other


@pytest.mark.verify
def test_a_search_from_the_shell_is_resumed(launcher, tmp_path):
  path = tmp_path / 'ranges.json'
  path.write_text(
    '{"algorithm.proximal_weight": {"low": 0.1, "high": 10, "log": true}}'
  )
  workdir = tmp_path / 'search'
  arguments = (
    'binaries.sweep',
    f'--config={_SYNTHETIC}:smoke',
    '--search=optuna',
    f'--ranges={path}',
    '--num_seeds=1',
    '--parallel=2',
    f'--workdir={workdir}',
    '--config.training.num_rounds=2',
    '--config.dataset.partition.num_clients=4',
    '--config.algorithm.cohort_size_per_cluster=2',
    '--config.runtime.name=debug',
  )
  program = launcher.run(*arguments, '--num_trials=2')
  assert program.returncode == 0, program.stderr
  program = launcher.run(*arguments, '--num_trials=3')
  assert program.returncode == 0, program.stderr
  assert program.stderr.count('has ended') == 1
  _check_nothing_is_left(program, workdir)
  title, *lines = program.stdout.splitlines()
  assert title.split()[:2] == ['trial', 'proximal_weight']
  scores = {int(line.split()[0]): float(line.split()[2]) for line in lines}
  assert sorted(scores) == [0, 1, 2]
  assert list(scores.values()) == sorted(scores.values())  # The least error.
  for trial, score in scores.items():
    folder = workdir / f'trial_{trial:04d}' / 'seed_0'
    summary = json.loads((folder / 'evaluation/summary.json').read_text())
    name = 'participating/validation/personalized/mse'
    assert summary['last'][name] == pytest.approx(score, rel=1e-3)
  assert (workdir / 'report' / 'search_history.png').is_file()


def _pid():
  import os

  return os.getpid()


def _runs_of(program):
  return [
    process
    for process in psutil.Process(program.pid).children(recursive=True)
    if any('run_process' in word for word in process.cmdline())
  ]


def _check_nothing_is_left(program, workdir):
  assert not program.processes()
  assert not program.temporary_files()
  assert not [*workdir.rglob('.lock'), *workdir.rglob('.staging*')]
