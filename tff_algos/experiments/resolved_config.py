"""Writes down what an experiment was, with all defaults."""

import os
import pathlib

from tff_algos.core import config as config_lib
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
