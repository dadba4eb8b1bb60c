"""The config of an experiment, and the objects that it names."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines import options
from tff_algos.adversaries import attacks
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib
from tff_algos.core import model as model_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.models import registry as models
from tff_algos.rounds import lr_schedule as rates
from tff_algos.runtimes import registry as runtimes
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.runtimes.distributed import process_group
from tff_algos.training import loop


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
  """Everything that decides an experiment; see `configs/`.

  Attributes:
    name: What the report is headed with.
    dataset: What `binaries.preprocess` builds.
    model: `name` of `models.registry`, and that model's options.
    algorithm: `name` of `algorithms.registry`, and its options.
    training: How long, and when to evaluate and save.
    runtime: Which runtime, and its options. Decides how fast, never with what
      result.
    attack: Which clients lie, and how.
    falling_rates: When the algorithm's learning rates fall.
    seed: Base of all randomness in training, >= 0.
  """

  name: str
  dataset: options.DatasetConfig
  model: Mapping[str, Any]
  algorithm: Mapping[str, Any]
  training: loop.TrainingConfig
  runtime: runtimes.RuntimeConfig = runtimes.RuntimeConfig()
  attack: attacks.AttackConfig = attacks.AttackConfig()
  falling_rates: rates.FallingRatesConfig = rates.FallingRatesConfig()
  seed: int = 0

  def __post_init__(self):
    checks.check_int('seed', self.seed, minimum=0)
    models.parse_config(self.model)
    algorithms.parse_periods(self.algorithm, self.falling_rates)


def parse(values: Any) -> ExperimentConfig:
  """Returns the experiment of a config file.

  Args:
    values: The `ConfigDict` that the file's `get_config` returned, with the
      overrides of the command line.

  Raises:
    ConfigError: If a key is unknown or a value out of range.
  """
  return config_lib.from_dict(ExperimentConfig, values.to_dict())


def identity(
  config: ExperimentConfig, dataset: dataset_lib.FederatedDataset
) -> dict[str, Any]:
  """Returns what decides the states of every round, with all defaults."""
  return {
    'seed': config.seed,
    'model': config_lib.spell(*models.parse_config(config.model)),
    'algorithm': config_lib.spell(*algorithms.parse_config(config.algorithm)),
    'dataset_version': dataset.version,
    **config.training.restarts.identity(),
    **config.attack.identity(),
    **config.falling_rates.identity(),
  }


def open_dataset(
  workdir: str | os.PathLike[str],
) -> dataset_lib.FederatedDataset:
  """Opens the dataset of a workdir.

  Raises:
    DataError: If it is missing, damaged, or nobody may be trained on it.
  """
  dataset = dataset_lib.FederatedDataset.open(pathlib.Path(workdir, 'dataset'))
  if not dataset.client_ids:
    raise errors.DataError(
      f'{dataset.path} has no participating client; build it with '
      'config.dataset.partition.num_clients >= 1'
    )
  return dataset


def build_model(
  config: ExperimentConfig, dataset: dataset_lib.FederatedDataset
) -> model_lib.Model:
  """Builds the model for the examples of a dataset.

  Raises:
    ConfigError: If no model takes them, or the config does not fit them.
  """
  schema, facts = dataset.schema, dataset.manifest['source_facts']
  return models.build_model(
    config.model,
    task=schema.task,
    input_shape=tuple(schema.x_shape),
    num_outputs=schema.num_classes or 1,
    input_dtype=tf.int32 if schema.x_dtype == 'int32' else tf.float32,
    label_shape=schema.y_shape,
    special_ids=facts.get('special_ids', {}),
    vocabulary=facts.get('vocabulary', ()),
  )


def build_algorithm(
  config: ExperimentConfig, dataset: dataset_lib.FederatedDataset
) -> algorithm_lib.FederatedAlgorithm:
  """Builds the algorithm, under attack if so configured, for a dataset."""
  built = algorithms.build_algorithm(
    config.algorithm,
    build_model(config, dataset),
    run_seed=config.seed,
    falling=config.falling_rates,
  )
  return attacks.attack(built, config.attack, find_attackers(config, dataset))


def find_attackers(
  config: ExperimentConfig, dataset: dataset_lib.FederatedDataset
) -> np.ndarray:
  """Returns which participating clients attack, bool `[num_clients]`."""
  return attacks.attackers(config.attack, dataset.client_ids, config.seed)


def open_group(
  config: ExperimentConfig,
  dataset: dataset_lib.FederatedDataset,
  cluster: cluster_lib.Cluster,
  saved_rounds: Sequence[int],
) -> contextlib.AbstractContextManager[process_group.ProcessGroup]:
  """Opens the group of processes that run an experiment together.

  Args:
    config: The experiment; all must have the same but for `runtime`.
    dataset: Open.
    cluster: The processes.
    saved_rounds: Rounds that have a checkpoint; all must see the same.
  """
  shared = {
    'experiment': identity(config, dataset),
    'training': config_lib.to_dict(config.training),
    'checkpoints': saved_rounds,
    'tensorflow': tf.__version__,
  }
  timeout_seconds = config.runtime.vectorized.peer_timeout_seconds
  return process_group.open_group(cluster, shared, timeout_seconds)
