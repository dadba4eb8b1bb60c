"""One run of a sweep: dataset, training, evaluation, unless it is finished."""

import json
import os
import pathlib

from absl import logging

from binaries import evaluate, preprocess, train
from pipelines import options
from tff_algos.core import config as config_lib
from tff_algos.experiments import experiment, runtime_cache


def make(
  config: experiment.ExperimentConfig,
  folder: pathlib.Path,
  datasets: pathlib.Path,
  kept: runtime_cache.KeptRuntime,
) -> bool:
  """Makes a run; goes on where it stopped.

  Args:
    config: The experiment.
    folder: Of the run.
    datasets: Where the sweep's datasets lie, each for all runs that share it.
    kept: Its runtime, if that fits; the one of this run after it.

  Returns:
    False if there was nothing to do.

  Raises:
    UserError: If the config, the data or the disk does not allow it.
  """
  if is_finished(config, folder):
    logging.info('It was finished before.')
    return False
  _place_dataset(config.dataset, folder, datasets)
  train.train(config, folder, kept=kept)  # pyright: ignore[reportArgumentType]
  evaluate.evaluate(config, folder, kept=kept)  # pyright: ignore[reportArgumentType]
  return True


def is_finished(
  config: experiment.ExperimentConfig, folder: pathlib.Path
) -> bool:
  """Returns whether a folder holds all results of this very experiment.

  The runtime may be another: it decides how fast, never with what result.
  """
  try:
    written = json.loads((folder / 'config.json').read_text())['config']
    summary = json.loads((folder / 'evaluation' / 'summary.json').read_text())
    last_round = summary['last']['round']
  except (FileNotFoundError, KeyError, ValueError):
    return False
  wanted = config_lib.to_dict(config)
  is_same = all(
    written.get(key) == value
    for key, value in wanted.items()
    if key != 'runtime'
  )
  # The page is written last.
  has_page = (folder / 'report' / 'index.html').is_file()
  return is_same and has_page and last_round == config.training.num_rounds


def _place_dataset(
  config: options.DatasetConfig, folder: pathlib.Path, datasets: pathlib.Path
) -> None:
  """Builds a dataset once for all runs that share it, and links it."""
  own = folder / 'dataset'
  if own.is_dir() and not own.is_symlink():
    preprocess.preprocess(config, folder)
    return
  shared = datasets / config_lib.config_hash(config)
  preprocess.preprocess(config, shared)
  folder.mkdir(parents=True, exist_ok=True)
  link = folder / '.dataset.linking'
  link.unlink(missing_ok=True)
  link.symlink_to(os.path.relpath(shared / 'dataset', folder))
  os.replace(link, own)
