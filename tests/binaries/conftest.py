"""What the tests of the binaries share: it takes long to make."""

import pathlib
from typing import NamedTuple

import pytest

from binaries import experiment, preprocess
from configs.fed_soft import digits
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


@pytest.fixture(scope='session')
def digits_dataset(tmp_path_factory):
  """A workdir with the dataset of `DIGITS`, and nothing else; not to change."""
  folder = tmp_path_factory.mktemp('digits')
  config = experiment.parse(digits.get_config('smoke'))
  preprocess.preprocess(config.dataset, folder)
  return folder
