"""Description of the round of an experiment, with or without its dataset."""

import os
from typing import NamedTuple

import numpy as np

from pipelines import build_dataset
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.data import schema as schema_lib
from tff_algos.experiments import experiment
from tff_algos.features import spec as spec_lib
from tff_algos.rounds import description
from tff_algos.training import loop


class _Data(NamedTuple):
  """What a description needs of a dataset."""

  schema: schema_lib.Schema
  feature_spec: spec_lib.FeatureSpec
  population: algorithm_lib.Population


def describe(
  config: experiment.ExperimentConfig,
  workdir: str | os.PathLike[str] | None = None,
) -> str:
  """Returns the round of an experiment as text, see `description.describe`.

  Args:
    config: The experiment; described without attack, privacy and learning-rate
      schedule.
    workdir: Folder with its dataset; None to take shapes and number of clients
      from the config, each client with examples.

  Raises:
    DataError: If they are not known without a dataset, or there is none.
  """
  data = _from_config(config) if workdir is None else _from_dataset(workdir)
  algorithm = algorithms.build_algorithm(
    config.algorithm,
    experiment.build_model(config, data.schema, data.feature_spec),
    run_seed=config.seed,
  )
  server_state = loop.initial_server_state(
    algorithm, data.population.num_clients, config.seed
  )
  return description.describe(
    algorithm, data.population, server_state, seed=config.seed
  )


def _from_dataset(workdir: str | os.PathLike[str]) -> _Data:
  with experiment.open_dataset(workdir) as dataset:
    population = algorithm_lib.Population(
      dataset.client_ids, dataset.num_examples(schema_lib.TRAIN)
    )
    return _Data(dataset.schema, dataset.feature_spec, population)


def _from_config(config: experiment.ExperimentConfig) -> _Data:
  num_clients = config.dataset.partition.num_clients
  if num_clients is None:
    raise errors.DataError(
      'config.dataset.partition.num_clients is not set, so the number of '
      'clients is that of the data; give the --workdir of a built dataset'
    )
  try:
    schema, spec = build_dataset.preview(config.dataset)
  except errors.DataError as error:
    raise errors.DataError(
      f'{error}. Without a built dataset (--workdir) the shape of examples is '
      'not known'
    ) from error
  ids = tuple(f'client_{index:05d}' for index in range(num_clients))
  population = algorithm_lib.Population(ids, np.ones(num_clients, np.int64))
  return _Data(schema, spec, population)
