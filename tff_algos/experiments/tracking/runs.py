"""The tracker's run of a workdir, which all programs of the workdir go on with.

`tracking.json` has its id.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from tff_algos.core import config as config_lib
from tff_algos.core import errors, sealed_json
from tff_algos.experiments import experiment
from tff_algos.experiments.tracking import (
  mlflow_tracker,
  tracker,
  wandb_tracker,
)

_FILE = 'tracking.json'
_REMEDY = (
  'Remove it; the tracker then gets a new run of this workdir with the next '
  'rounds.'
)


@contextlib.contextmanager
def opened(
  config: experiment.ExperimentConfig, folder: str | os.PathLike[str]
) -> Iterator[tracker.Tracker | None]:
  """Yields the tracker's run of a workdir; None if tracking is off.

  Args:
    config: The experiment.
    folder: Its workdir.

  Raises:
    UserError: If the tracker's package is not installed.
    InfrastructureError: If the tracker fails.
  """
  name = config.tracking.name
  if name == tracker.OFF:
    yield None
    return
  path = pathlib.Path(folder, _FILE)
  found = _open(config, path.parent, _read_ids(path).get(name))
  try:
    remember(config, folder, found)
    yield found
  except BaseException:
    try:
      found.close(has_failed=True)
    except errors.UserError as error:  # It hides no other one.
      logging.error('%s', error)
    raise
  found.close()


def remember(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  found: tracker.Tracker,
) -> None:
  """Writes the run's id, with which a program goes on even after a kill.

  Args:
    config: The experiment.
    folder: Its workdir.
    found: The tracker's run, new or resumed.
  """
  path = pathlib.Path(folder, _FILE)
  ids = {**_read_ids(path), config.tracking.name: found.run_id}
  sealed_json.write(path, ids)


def register(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  bundles: Sequence[str | os.PathLike[str]],
) -> None:
  """Sends released bundles of a workdir."""
  with opened(config, folder) as found:
    if found is not None:
      for bundle in bundles:
        found.register(tracker.read_model(pathlib.Path(bundle)))


def _read_ids(path: pathlib.Path) -> dict[str, str]:
  """Returns tracker -> id of its run."""
  return sealed_json.read(path, _REMEDY) if path.exists() else {}


def _open(
  config: experiment.ExperimentConfig,
  folder: pathlib.Path,
  run_id: str | None,
) -> Any:
  """Returns the client of a tracker."""
  options = config_lib.flatten(config_lib.to_dict(config))
  name = '/'.join(folder.absolute().parts[-2:])
  if config.tracking.name == tracker.MLFLOW:
    return mlflow_tracker.MlflowTracker(config.tracking, options, name, run_id)
  return wandb_tracker.WandbTracker(
    config.tracking, options, name, run_id, folder
  )
