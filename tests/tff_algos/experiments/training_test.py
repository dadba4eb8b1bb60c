"""Training again in a workdir: resumed, refused, cleaned up."""

import pathlib
import shutil
import types

import numpy as np
import pytest

from configs.fed_soft import synthetic
from tff_algos.core import errors
from tff_algos.experiments import datasets, experiment, training


def _config(**training):
  config = synthetic.get_config('smoke')
  config.runtime.name = 'debug'
  config.algorithm.local_training.num_local_epochs = 1
  config.training.update(training)
  return experiment.parse(config)


def _num_rows(folder: pathlib.Path) -> int:
  try:
    return (folder / 'metrics.csv').read_text().count('\n')
  except FileNotFoundError:
    return 0


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  folder = tmp_path_factory.mktemp('synthetic')
  config = experiment.parse(synthetic.get_config('smoke'))
  datasets.build(config.dataset, folder)
  return folder / 'dataset'


def test_more_rounds_go_on_and_fewer_are_refused(
  dataset, tmp_path, caplog, capfd
):
  shutil.copytree(dataset, tmp_path / 'dataset')
  assert training.train(_config(num_rounds=1), tmp_path) == 1
  progress = capfd.readouterr().err
  assert 'personalized validation mse=' in progress
  assert 'training loss=' in progress
  with caplog.at_level('INFO', logger='absl'):
    assert training.train(_config(num_rounds=1), tmp_path) == 1
  assert f'{tmp_path} is at round 1, the last: nothing' in caplog.text
  assert _num_rows(tmp_path) == 1 + 2
  assert training.train(_config(num_rounds=2), tmp_path) == 2
  assert _num_rows(tmp_path) == 1 + 3
  before = (tmp_path / 'config.json').read_bytes()
  with pytest.raises(
    errors.ConfigError,
    match=r'num_rounds is 1, but .* trained for 2 rounds.*num_rounds=2 or more',
  ):
    training.train(_config(num_rounds=1), tmp_path)
  assert _num_rows(tmp_path) == 1 + 3
  assert (tmp_path / 'config.json').read_bytes() == before


@pytest.mark.parametrize(('num_examples', 'is_shown'), [(3, True), (0, False)])
def test_validation_is_shown_if_there_are_examples(num_examples, is_shown):
  dataset = types.SimpleNamespace(
    num_examples=lambda split: np.array([0, num_examples])
  )
  shown = training.shown_metrics(dataset)
  assert shown['train/loss'] == 'training loss'
  name = 'participating/validation/personalized/accuracy'
  assert (name in shown) == is_shown


def test_other_config_in_a_used_workdir_is_refused(dataset, tmp_path):
  shutil.copytree(dataset, tmp_path / 'dataset')
  training.train(_config(num_rounds=1), tmp_path)
  before = (tmp_path / 'metrics.csv').read_bytes()
  config = synthetic.get_config('smoke')
  with pytest.raises(
    errors.CheckpointError,
    match='algorithm.local_training.num_local_epochs: 1 there, 10 now',
  ):
    training.train(experiment.parse(config), tmp_path)
  assert (tmp_path / 'metrics.csv').read_bytes() == before
  assert not (tmp_path / '.lock').exists()


def test_half_written_checkpoint_is_removed(dataset, tmp_path):
  shutil.copytree(dataset, tmp_path / 'dataset')
  half = tmp_path / 'checkpoints' / '.writing_000001'
  half.mkdir(parents=True)
  (half / 'server_state.npz').write_bytes(b'half')
  training.train(_config(num_rounds=1), tmp_path)
  assert not half.exists()
