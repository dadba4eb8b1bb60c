"""What the tests of the binaries share: it takes long to make."""

import pathlib
from typing import NamedTuple

import pytest

from binaries import experiment, preprocess, train
from configs.fed_soft import digits, synthetic
from tests.testing import programs

DIGITS = 'configs/fed_soft/digits.py:smoke'


class FinishedRun(NamedTuple):
  """What `binaries.run` did with `configs/fed_soft/digits.py:smoke`."""

  program: programs.Program
  config: experiment.ExperimentConfig
  folder: pathlib.Path


@pytest.fixture(scope='session')
def finished_run(launcher, tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  program = launcher.run(
    'binaries.run', f'--config={DIGITS}', f'--workdir={folder}'
  )
  assert program.returncode == 0, program.stderr
  return FinishedRun(
    program, experiment.parse(digits.get_config('smoke')), folder
  )


class TrainedRegressions(NamedTuple):
  """FedSoft on linear regressions, two rounds, each with its checkpoint."""

  config: experiment.ExperimentConfig
  folder: pathlib.Path


@pytest.fixture(scope='session')
def trained_regressions(tmp_path_factory):
  folder = tmp_path_factory.mktemp('regressions')
  values = synthetic.get_config('smoke')
  values.training.update({'num_rounds': 2, 'checkpoint_interval': 1})
  values.algorithm.local_training.num_local_epochs = 2
  values.runtime.name = 'debug'  # It traces no graphs.
  config = experiment.parse(values)
  preprocess.preprocess(config.dataset, folder)
  train.train(config, folder)
  return TrainedRegressions(config, folder)


@pytest.fixture(scope='session')
def digits_dataset(tmp_path_factory):
  """A workdir with the dataset of `DIGITS`, and nothing else; not to change."""
  folder = tmp_path_factory.mktemp('digits')
  config = experiment.parse(digits.get_config('smoke'))
  preprocess.preprocess(config.dataset, folder)
  return folder
