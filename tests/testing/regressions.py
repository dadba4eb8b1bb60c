"""Trainings on the dataset of the fixture `trained_regressions`."""

import pathlib

from configs.fed_soft import synthetic
from tff_algos.experiments import experiment


def config(**training: object) -> experiment.ExperimentConfig:
  """Returns the config of a training that traces no graphs."""
  values = synthetic.get_config('smoke')
  values.runtime.name = 'debug'
  values.algorithm.local_training.num_local_epochs = 1
  values.training.update(training)
  return experiment.parse(values)


def num_rows(folder: pathlib.Path) -> int:
  """Returns the number of lines of a run's metrics, 0 before there are any."""
  try:
    return (folder / 'metrics.csv').read_text().count('\n')
  except FileNotFoundError:
    return 0
