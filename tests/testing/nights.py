"""A tiny production: CSV files of a few clients, a night in seconds.

It is a config file as well: `--config=tests/testing/nights.py`, with
`--config.dataset.source.options.path` for the raw files.
"""

import csv
import pathlib

import ml_collections
import numpy as np

from configs import base
from tests.testing import csv_files
from tff_algos.core import durable
from tff_algos.experiments import experiment

PATH = 'tests/testing/nights.py'
FIRST, BETWEEN, SECOND, THIRD, FOURTH = (
  f'2026-11-{day:02d}' for day in range(1, 6)
)
NUM_ROUNDS = 2
_NUM_ROWS = 24


def get_config(
  algorithm: str = 'fed_soft', model: str = 'logistic_regression'
) -> ml_collections.ConfigDict:
  """Returns the config; the folder of raw files is left open."""
  config = base.experiment(algorithm, model=model, source='csv', law='natural')
  config.name = 'Every night'
  config.dataset.source.options.update(
    path='raw/*.csv',
    label_column='y',
    feature_columns=('x', 'z'),
    client_column='client',
    classes=('no', 'yes'),
  )
  config.dataset.splits.update(
    validation_ratio=0.2, test_ratio=0.2, held_out_fraction=0.2
  )
  config.dataset.num_shards = 1
  if algorithm == 'fed_soft':
    config.algorithm.cohort_size_per_cluster = 4
  config.algorithm.local_training.update(num_local_epochs=1)
  config.algorithm.local_training.optimizer.learning_rate = 0.5
  config.training.update(num_rounds=NUM_ROUNDS, checkpoint_interval=1)
  config.gate.num_resamples = 200
  config.runtime.name = 'debug'
  return config


def parse(
  raw: pathlib.Path,
  algorithm: str = 'fed_soft',
  model: str = 'logistic_regression',
  **sections,
) -> experiment.ExperimentConfig:
  """Returns the experiment on a folder of raw files.

  Args:
    raw: The folder.
    algorithm: Name of the algorithm.
    model: Name of the model.
    **sections: Section -> options that differ.
  """
  config = get_config(algorithm, model)
  config.dataset.source.options.path = str(raw / '*.csv')
  for name, options in sections.items():
    config[name].update(options)
  return experiment.parse(config)


def write_day(
  raw: pathlib.Path,
  date: str,
  clients: str = 'abcd',
  *,
  turns_labels: bool = False,
) -> None:
  """Writes the rows of a day; the label is the sign of x, or its opposite.

  Args:
    raw: Folder of the raw files.
    date: The day, and the name of the file.
    clients: A letter a client; the sign of x is the label of the first half of
      the alphabet, its opposite that of the second.
    turns_labels: Whether all labels are the opposite.
  """
  durable.make_folder(raw)
  generator = np.random.default_rng(int(date.replace('-', '')))
  with (raw / f'{date}.csv').open('w', newline='') as file:
    writer = csv.writer(file)
    writer.writerow(('client', 'x', 'z', 'y'))
    for client in clients:
      sign = (1 if client < 'n' else -1) * (-1 if turns_labels else 1)
      for x, z in generator.normal(size=(_NUM_ROWS, 2)).round(4).tolist():
        writer.writerow((client, x, z, ('no', 'yes')[int(sign * x > 0)]))


def flags(raw: pathlib.Path, workdir: pathlib.Path, date: str) -> list[str]:
  """Returns the flags of `binaries.nightly`."""
  return [
    f'--config={PATH}',
    f'--config.dataset.source.options.path={raw}/*.csv',
    f'--workdir={workdir}',
    f'--as_of={date}',
  ]


def content(folder: pathlib.Path) -> dict[str, bytes | str]:
  """Returns path -> content of all that is in a production folder.

  Links are their targets, folders ''. TensorBoard's files and the report, whose
  pictures show the clock, are left out, and so are the seconds in metrics.csv and
  records.json, which has its hash.
  """
  found = {}
  for path in sorted(folder.rglob('*')):
    name = path.relative_to(folder)
    if {'tensorboard', 'report', 'records.json'} & {*name.parts}:
      continue
    if path.is_symlink():
      found[str(name)] = str(path.readlink())
    elif path.is_dir():
      found[str(name)] = ''
    elif path.name == 'metrics.csv':
      found[str(name)] = repr(csv_files.read_rounds(path))
    else:
      found[str(name)] = path.read_bytes()
  return found
