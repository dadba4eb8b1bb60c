"""The runs of a sweep: what is made, left undone, refused."""

import dataclasses
import shutil

import pytest

from configs.fed_soft import synthetic
from tests.testing import fake_sweep, saved_run
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors, sealed_json
from tff_algos.experiments import (
  datasets as datasets_lib,
)
from tff_algos.experiments import (
  evaluating,
  experiment,
  resolved_config,
  runtime_cache,
  training,
)
from tff_algos.experiments.sweeps import comparison, grid
from tff_algos.experiments.sweeps import runs as sweep_runs
from tff_algos.experiments.tracking import runs as tracking
from tff_algos.privacy import mechanism
from tff_algos.reports.run import page
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.training import checkpoint, continuation, selection

_CONFIG = experiment.parse(synthetic.get_config('smoke'))
_LONGER = dataclasses.replace(
  _CONFIG, training=dataclasses.replace(_CONFIG.training, num_rounds=4)
)
_OTHER_DATA = dataclasses.replace(
  _CONFIG, dataset=dataclasses.replace(_CONFIG.dataset, seed=5)
)
_BASE = synthetic.get_config('smoke').to_dict()


def _write(folder, config=_CONFIG):
  """Writes a finished run: its last round is that of the config."""
  fake_sweep.write_run(folder, num_rounds=config.training.num_rounds)
  resolved_config.write(config, folder, {})


def _make(config, folder, datasets):
  with runtime_cache.KeptRuntime() as kept:
    return sweep_runs.make(config, folder, datasets, kept)


@pytest.fixture
def done(monkeypatch):
  """Replaces the steps of a run; returns what was done, in order."""
  steps = []

  def build(dataset, folder):
    steps.append('preprocess')
    (folder / 'dataset').mkdir(parents=True, exist_ok=True)
    (folder / 'dataset' / 'CURRENT').write_text(str(dataset.seed))

  monkeypatch.setattr(datasets_lib, 'build', build)
  monkeypatch.setattr(
    training, 'train', lambda *_, **kept: steps.append('train')
  )
  monkeypatch.setattr(
    evaluating, 'evaluate', lambda *_, **kept: steps.append('evaluate')
  )
  monkeypatch.setattr(page, 'write_report', lambda *_: steps.append('report'))
  return steps


def test_a_finished_run_is_left_alone(tmp_path, done):
  _write(tmp_path / 'run')
  _make(_CONFIG, tmp_path / 'run', tmp_path / 'datasets')
  assert not done
  assert not (tmp_path / 'datasets').exists()


def test_a_new_run_makes_all_steps(tmp_path, done):
  _make(_CONFIG, tmp_path / 'run', tmp_path / 'datasets')
  assert done == ['preprocess', 'train', 'evaluate', 'report']


@pytest.mark.parametrize(
  'module, step', [(page, 'write_report'), (tracking, 'opened')]
)
def test_a_run_is_finished_after_its_last_step(
  tmp_path, done, monkeypatch, module, step
):
  """Also one that has the page of fewer rounds."""
  _write(tmp_path / 'run')
  index = tmp_path / 'run' / 'report' / 'index.html'

  def evaluate(config, folder, **kept):
    has_page = index.exists()
    shutil.rmtree(folder / 'evaluation')
    shutil.rmtree(index.parent)
    _write(folder, config)
    if not has_page:
      index.unlink()

  def fail(*_, **kept):
    raise errors.InfrastructureError('away')

  monkeypatch.setattr(evaluating, 'evaluate', evaluate)
  monkeypatch.setattr(page, 'write_report', lambda *_: index.write_text(''))
  with monkeypatch.context() as patched:
    patched.setattr(module, step, fail)
    with pytest.raises(errors.InfrastructureError, match='away'):
      _make(_LONGER, tmp_path / 'run', tmp_path / 'datasets')
  assert not sweep_runs.is_finished(_LONGER, tmp_path / 'run')
  _make(_LONGER, tmp_path / 'run', tmp_path / 'datasets')
  assert sweep_runs.is_finished(_LONGER, tmp_path / 'run')


def test_a_run_that_is_refused_keeps_its_page(tmp_path, monkeypatch):
  _write(tmp_path / 'run')

  def refuse(*_, **kept):
    raise errors.ConfigError('another run')

  monkeypatch.setattr(training, 'train', refuse)
  other = dataclasses.replace(_CONFIG, seed=_CONFIG.seed + 1)
  with pytest.raises(errors.ConfigError, match='another run'):
    _make(other, tmp_path / 'run', tmp_path / 'datasets')
  assert sweep_runs.is_finished(_CONFIG, tmp_path / 'run')


@pytest.mark.parametrize('has_checkpoint', [True, False])
def test_a_run_that_is_refused_keeps_its_dataset(
  tmp_path, done, monkeypatch, has_checkpoint
):
  folder = tmp_path / 'run'
  _make(_CONFIG, folder, tmp_path / 'datasets')
  own = (folder / 'dataset').readlink()
  if has_checkpoint:
    saved_run.Run(folder / checkpoint.FOLDER).train(1)

  def refuse(*_, **kept):
    assert (folder / 'dataset').readlink() != own
    raise errors.CheckpointError('another experiment')

  monkeypatch.setattr(training, 'train', refuse)
  with pytest.raises(errors.CheckpointError, match='another experiment'):
    _make(_OTHER_DATA, folder, tmp_path / 'datasets')
  # Without a checkpoint it is the dataset of what it was about to train.
  assert ((folder / 'dataset').readlink() == own) == has_checkpoint


def test_another_runtime_makes_no_other_run(tmp_path):
  _write(tmp_path)
  runtime = dataclasses.replace(_CONFIG.runtime, name='debug')
  other = dataclasses.replace(_CONFIG, runtime=runtime)
  assert sweep_runs.is_finished(other, tmp_path)


@pytest.mark.parametrize(
  'change',
  [
    {'seed': 1},
    {'training': _LONGER.training},
    {'algorithm': algorithms.parse_config({'name': 'fed_soft'})},
  ],
)
def test_another_config_is_another_run(tmp_path, change):
  _write(tmp_path)
  assert sweep_runs.is_finished(_CONFIG, tmp_path)
  assert not sweep_runs.is_finished(
    dataclasses.replace(_CONFIG, **change), tmp_path
  )


def test_longer_training_is_not_finished_by_its_config_alone(tmp_path):
  _write(tmp_path)
  resolved_config.write(_LONGER, tmp_path, {})
  assert not sweep_runs.is_finished(_LONGER, tmp_path)


@pytest.mark.parametrize(
  'name', ['config.json', 'evaluation/summary.json', 'report/index.html']
)
def test_a_run_that_was_ended_is_not_finished(tmp_path, name):
  _write(tmp_path)
  (tmp_path / name).unlink()
  assert not sweep_runs.is_finished(_CONFIG, tmp_path)


@pytest.mark.parametrize(('num_since', 'is_finished'), [(1, False), (2, True)])
def test_a_run_that_stopped_early_is_finished(tmp_path, num_since, is_finished):
  config = dataclasses.replace(
    _CONFIG,
    training=dataclasses.replace(
      _CONFIG.training,
      num_rounds=9,
      selection=selection.SelectionConfig(patience=2),
    ),
  )
  fake_sweep.write_run(tmp_path, num_rounds=4)
  resolved_config.write(config, tmp_path, {})
  assert not sweep_runs.is_finished(config, tmp_path)
  progress = selection.Progress(1, 0.5, num_since)
  run = saved_run.Run(tmp_path / checkpoint.FOLDER)
  run.train(4, progress=progress)
  assert sweep_runs.is_finished(config, tmp_path) == is_finished


@pytest.mark.parametrize(
  ('target_epsilon', 'rounds', 'is_finished'),
  [(2.0, 4, True), (2.2, 4, False), (2.0, 3, False)],
)
def test_a_run_that_its_budget_ended_is_finished(
  tmp_path, target_epsilon, rounds, is_finished
):
  config = dataclasses.replace(
    _CONFIG,
    training=dataclasses.replace(_CONFIG.training, num_rounds=9),
    privacy=mechanism.PrivacyConfig(
      noise_multiplier=3.0, target_epsilon=target_epsilon
    ),
  )
  fake_sweep.write_run(tmp_path, num_rounds=rounds)
  resolved_config.write(config, tmp_path, {})
  (header, *lines) = (tmp_path / 'metrics.csv').read_text().splitlines()
  # 2.1 after another round than the fourth.
  values = ['', '0.6', '1.1', '1.6', '2.1'][: len(lines)]
  rows = [f'{line},{value}' for line, value in zip(lines, values, strict=True)]
  (tmp_path / 'metrics.csv').write_text(
    '\n'.join([f'{header},privacy/next_epsilon', *rows, ''])
  )
  assert sweep_runs.is_finished(config, tmp_path) == is_finished


def test_a_continued_run_counts_from_its_parent(tmp_path):
  fake_sweep.write_run(tmp_path, num_rounds=_CONFIG.training.num_rounds + 5)
  resolved_config.write(_CONFIG, tmp_path, {})
  assert not sweep_runs.is_finished(_CONFIG, tmp_path)
  parent = continuation.Parent('../parent', 5, 'v')
  sealed_json.write(tmp_path / 'parent.json', parent._asdict())
  assert sweep_runs.is_finished(_CONFIG, tmp_path)


def test_damaged_json_is_not_finished(tmp_path):
  _write(tmp_path)
  (tmp_path / 'evaluation' / 'summary.json').write_text('{')
  assert not sweep_runs.is_finished(_CONFIG, tmp_path)
  sealed_json.write(tmp_path / 'evaluation' / 'summary.json', {})
  assert not sweep_runs.is_finished(_CONFIG, tmp_path)


def test_a_damaged_parent_is_not_finished(tmp_path):
  _write(tmp_path)
  assert sweep_runs.is_finished(_CONFIG, tmp_path)
  (tmp_path / 'parent.json').write_text('{')
  assert not sweep_runs.is_finished(_CONFIG, tmp_path)


def test_equal_datasets_are_one_and_moved_together(tmp_path, done):
  datasets = tmp_path / 'sweep' / 'datasets'
  for name, config in (('a', _CONFIG), ('x/b', _CONFIG), ('c', _OTHER_DATA)):
    _make(config, tmp_path / 'sweep' / name, datasets)
  assert len(list(datasets.iterdir())) == 2
  moved = (tmp_path / 'sweep').rename(tmp_path / 'moved')
  seeds = [
    (moved / name / 'dataset' / 'CURRENT').read_text()
    for name in ('a', 'x/b', 'c')
  ]
  assert seeds == ['0', '0', '5']
  assert (moved / 'a' / 'dataset').samefile(moved / 'x/b' / 'dataset')


def test_a_link_to_another_dataset_is_replaced(tmp_path, done):
  folder, datasets = tmp_path / 'run', tmp_path / 'datasets'
  _make(_CONFIG, folder, datasets)
  _make(_OTHER_DATA, folder, datasets)
  assert (folder / 'dataset' / 'CURRENT').read_text() == '5'
  assert {path.name for path in folder.iterdir()} == {'dataset'}


def test_a_dataset_of_its_own_stays_its_own(tmp_path, done):
  folder = tmp_path / 'run'
  (folder / 'dataset').mkdir(parents=True)
  _make(_CONFIG, folder, tmp_path / 'datasets')
  assert not (folder / 'dataset').is_symlink()
  assert (folder / 'dataset' / 'CURRENT').read_text() == '0'
  assert not (tmp_path / 'datasets').exists()


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

  monkeypatch.setattr(sweep_runs, 'make', make)
  return seeds


def test_a_refused_run_is_told_at_the_end_and_the_others_go_on(tmp_path, made):
  runs = grid.expand({'smoke': _BASE}, [], 3)
  plan = sweep_runs.sweep(runs, tmp_path)
  assert made == [0, 1, 2]
  assert [run.error for run in plan.runs] == ['', '184 wanted, 182 exist', '']
  assert plan_lib.read(tmp_path) == plan
  with pytest.raises(
    errors.UserError, match='1 of 3 runs.*seed_1: 184 wanted, 182 exist'
  ):
    sweep_runs.check_all_ran(plan)
  assert '(2 seeds;' in comparison.compare(tmp_path)


def test_a_failing_machine_stops_the_sweep(tmp_path, made):
  runs = grid.expand({'smoke': _BASE}, [], 5)
  with pytest.raises(errors.InfrastructureError, match='disk full'):
    sweep_runs.sweep(runs, tmp_path)
  assert made == [0, 1, 2, 3]
  told = [run.error for run in plan_lib.read(tmp_path).runs]
  assert told == ['', '184 wanted, 182 exist', '', '', '']


def test_a_sweep_without_a_fault_is_none():
  plan = grid.expand({'smoke': _BASE}, [], 2).plan
  sweep_runs.check_all_ran(plan)
