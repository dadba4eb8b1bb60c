"""The resolved config of a run, `config.json` in its workdir."""

import json
import os
import pathlib

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment, output


def write(
  config: experiment.ExperimentConfig, workdir: str | os.PathLike[str]
) -> None:
  """Writes `config.json`: the resolved config and its hash."""
  content = {
    'name': config.name,
    'config_hash': config_lib.config_hash(config),
    'config': config_lib.to_dict(config),
  }
  output.write_json(pathlib.Path(workdir, 'config.json'), content)


def read(workdir: str | os.PathLike[str]) -> experiment.ExperimentConfig:
  """Returns the config of a trained run.

  Raises:
    DataError: If there is no `config.json`.
    ConfigError: If this version cannot read it; says what to do.
  """
  path = pathlib.Path(workdir, 'config.json')
  if not path.is_file():
    raise errors.DataError(
      f'{path} is missing; name folders of runs that binaries.train has made'
    )
  values = json.loads(path.read_text())['config']
  try:
    return experiment.parse_plain(values)
  except errors.ConfigError as error:
    raise errors.ConfigError(f'{path}: {error}') from None
