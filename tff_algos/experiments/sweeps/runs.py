"""Execution of the runs of a sweep: dataset, training, evaluation."""

import contextlib
import os
import pathlib
import time
from collections.abc import Generator

from absl import logging

from pipelines import options
from tff_algos.core import config as config_lib
from tff_algos.core import durable, errors
from tff_algos.experiments import datasets as datasets_lib
from tff_algos.experiments import (
  evaluating,
  experiment,
  runtime_cache,
  training,
)
from tff_algos.experiments.sweeps import grid
from tff_algos.privacy import private_algorithm
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.training import checkpoint, continuation

_POLL_SECONDS = 0.5


def sweep(runs: grid.Grid, folder: str | os.PathLike[str]) -> plan_lib.Plan:
  """Executes the unfinished runs of a sweep.

  Args:
    runs: Grid of the sweep.
    folder: Folder of the sweep, with a subfolder for each run.

  Returns:
    The plan, with the errors of the runs that failed by a user error, as
    written to `sweep.json`.

  Raises:
    ConfigError: If the folder is that of a run or of another kind of sweep.
    InfrastructureError: If the disk or the machine fails; the same command
      resumes the sweep.
  """
  workdir = pathlib.Path(folder)
  planned = runs.plan.runs
  with (
    grid.recording(runs.plan, workdir) as refused,
    runtime_cache.KeptRuntime() as kept,
  ):
    for index, config in enumerate(runs.configs):
      run = planned[index]
      logging.info('Run %d of %d: %s', index + 1, len(planned), run.folder)
      try:
        make(config, workdir / run.folder, workdir / 'datasets', kept)
      except errors.InfrastructureError:
        raise
      except errors.UserError as error:
        logging.warning('%s is refused: %s', run.folder, error)
        refused[run.folder] = str(error)
  return plan_lib.read(workdir)


def check_all_ran(plan: plan_lib.Plan) -> None:
  """Raises UserError if a run was refused; names the first."""
  failed = [run for run in plan.runs if run.error]
  if failed:
    raise errors.UserError(
      f'{len(failed)} of {len(plan.runs)} runs were refused, and the others '
      f'are finished. The first, {failed[0].folder}: {failed[0].error}'
    )


def make(
  config: experiment.ExperimentConfig,
  folder: pathlib.Path,
  datasets: pathlib.Path,
  kept: runtime_cache.KeptRuntime,
  *,
  shows_progress: bool = True,
) -> None:
  """Executes a run, or resumes it, unless it was finished before.

  Args:
    config: The experiment.
    folder: Folder of the run.
    datasets: Folder of the sweep's datasets, each built once for all runs that
      share it.
    kept: Runtime cache; holds the runtime of this run afterwards.
    shows_progress: Whether to draw a progress bar on stderr.

  Raises:
    UserError: If the config, the data or the disk does not allow it.
  """
  if is_finished(config, folder):
    logging.info('It was finished before.')
    return
  with _placed_dataset(config.dataset, folder, datasets):
    training.train(config, folder, kept=kept, shows_progress=shows_progress)
  # From here on a page is there if the run is finished.
  _page(folder).unlink(missing_ok=True)
  evaluating.evaluate(config, folder, kept=kept)
  try:
    evaluating.write_report(config, folder)
  except BaseException:
    _page(folder).unlink(missing_ok=True)
    raise


def build_shared(
  config: options.DatasetConfig, datasets: pathlib.Path
) -> pathlib.Path:
  """Builds a dataset of a sweep, or waits for the process that builds it.

  Args:
    config: Of the dataset.
    datasets: Folder of the sweep's datasets.

  Returns:
    The folder that has it as `dataset`.
  """
  shared = datasets / config_lib.config_hash(config)
  waits = False
  while True:
    try:
      datasets_lib.build(config, shared)
      return shared
    except errors.WorkdirBusyError as error:
      if not waits:
        logging.info('Waits: %s', error)
      waits = True
      time.sleep(_POLL_SECONDS)


def is_finished(
  config: experiment.ExperimentConfig, folder: pathlib.Path
) -> bool:
  """Returns whether a folder holds all results of an experiment.

  Sections that never affect results may differ. Damaged results are not all:
  `make` says what is wrong with them.
  """
  wanted = experiment.effective(config_lib.to_dict(config))
  try:
    run = run_lib.read(folder)
    is_same = all(run.config.get(key) == value for key, value in wanted.items())
    has_page = _page(folder).is_file()
    return is_same and has_page and _is_last(config, run)
  except (errors.UserError, OSError, KeyError):
    return False


def _page(folder: pathlib.Path) -> pathlib.Path:
  """Returns the report page of a run, its last file."""
  return folder / 'report' / 'index.html'


def _is_last(config: experiment.ExperimentConfig, run: run_lib.Run) -> bool:
  """Returns whether a training ends with the last round that was evaluated.

  Early stopping and a spent privacy budget end it before all are run.
  """
  round_num = run.summary['last']['round']
  parent = continuation.read_parent(run.workdir)
  first = parent.round_num if parent else 0
  if round_num == first + config.training.num_rounds:
    return True
  epsilon = run.series(private_algorithm.NEXT_EPSILON)
  if epsilon and epsilon.rounds[-1] == round_num:
    return config.privacy.is_exceeded_by(float(epsilon.values[-1]))
  manager = checkpoint.reader(run.workdir)
  is_saved = round_num in manager.rounds()
  selection = config.training.selection
  return is_saved and manager.progress(round_num).is_over(selection)


@contextlib.contextmanager
def _placed_dataset(
  config: options.DatasetConfig, folder: pathlib.Path, datasets: pathlib.Path
) -> Generator[None]:
  """Builds a dataset once for all runs that share it, and links it.

  A run with checkpoints keeps its link if its training fails: it is refused if
  the dataset is another one, and would not find its own again.
  """
  own = folder / 'dataset'
  if own.is_dir() and not own.is_symlink():
    datasets_lib.build(config, folder)
    yield
    return
  shared = build_shared(config, datasets)
  before = None
  if own.is_symlink() and checkpoint.reader(folder).rounds():
    before = own.readlink()
  durable.make_folder(folder)
  _link(own, os.path.relpath(shared / 'dataset', folder))
  try:
    yield
  except BaseException:
    if before is not None:
      _link(own, before)
    raise


def _link(link: pathlib.Path, target: str | os.PathLike[str]) -> None:
  written = link.with_name('.dataset.linking')
  written.unlink(missing_ok=True)
  written.symlink_to(target)
  os.replace(written, link)
