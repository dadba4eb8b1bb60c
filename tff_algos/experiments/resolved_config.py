"""The resolved config of a run, `config.json` in its workdir."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_algos.core import config as config_lib
from tff_algos.core import errors, sealed_json
from tff_algos.experiments import experiment
from tff_algos.runtimes import registry as runtimes
from tff_algos.training import checkpoint

_FILE = 'config.json'
_REMEDY = (
  'Name folders of runs that binaries.train has made; started again with the '
  "run's own config, it writes the file anew"
)


def write(
  config: experiment.ExperimentConfig,
  workdir: str | os.PathLike[str],
  run_identity: Mapping[str, Any],
  made_by: Mapping[str, Any] | None = None,
) -> None:
  """Writes `config.json`: the config, its hash, that of the run, provenance.

  `provenance` lists that of each training of the run that had rounds left, once
  if they are alike.

  Args:
    config: The config.
    workdir: Folder of the run.
    run_identity: `CheckpointManager.run_identity`.
    made_by: Result of `provenance.describe`; None if no round is left.
  """
  path = pathlib.Path(workdir, _FILE)
  run_hash = config_lib.config_hash(run_identity)
  provenance = _provenance_so_far(path, run_hash)
  if made_by is not None and made_by not in provenance:
    provenance = [*provenance, made_by]
  content = {
    'name': config.name,
    'config_hash': experiment.config_hash(config),
    'run_hash': run_hash,
    'provenance': provenance,
    'config': config_lib.to_dict(config),
  }
  sealed_json.write(path, content)


def _provenance_so_far(path: pathlib.Path, run_hash: str) -> list[Any]:
  """Returns the provenance in a file; none if damaged or of another run."""
  try:
    written = sealed_json.read(path, _REMEDY)
  except errors.DataError:
    return []
  return (
    written.get('provenance', []) if written.get('run_hash') == run_hash else []
  )


def run_hash(workdir: str | os.PathLike[str]) -> str | None:
  """Returns the hash of a run; None before its training.

  Raises:
    DataError: If `config.json` is damaged.
  """
  path = pathlib.Path(workdir, _FILE)
  if not os.path.lexists(path):
    return None
  return sealed_json.read(path, _REMEDY)['run_hash']


def read(
  workdir: str | os.PathLike[str],
  runtime: runtimes.RuntimeConfig | None = None,
) -> experiment.ExperimentConfig:
  """Returns the config of a trained run.

  Args:
    workdir: Folder of the run.
    runtime: Replaces that of the run, which may have options that this version
      lacks; None for that of the run.

  Raises:
    DataError: If `config.json` is missing, damaged or of another run.
    ConfigError: If this version cannot read it; says what to do.
  """
  path = pathlib.Path(workdir, _FILE)
  content = sealed_json.read(path, _REMEDY)
  manager = checkpoint.reader(workdir)
  saved, run_hash = manager.rounds(), content.get('run_hash')
  if saved and run_hash:
    expected = config_lib.config_hash(manager.identity(saved[-1]))
    if run_hash != expected:
      raise errors.DataError(
        f'{path} is of another run than the checkpoints beside it. {_REMEDY}'
      )
  values = content['config']
  if runtime is not None:
    values = {**values, 'runtime': config_lib.to_dict(runtime)}
  try:
    return experiment.parse_plain(values)
  except errors.ConfigError as error:
    raise errors.ConfigError(
      f'{path}: {error}. If this names an option that only an earlier version '
      'had, read the run with that version, or train it anew in another folder'
    ) from None
