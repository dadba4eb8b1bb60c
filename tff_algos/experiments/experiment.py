"""Typed config of an experiment, and construction of its objects."""

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
from tff_algos.core import checks, durable, errors
from tff_algos.core import config as config_lib
from tff_algos.core import model as model_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout
from tff_algos.data import schema as schema_lib
from tff_algos.evaluation import drift as drift_lib
from tff_algos.experiments.production import gate_config
from tff_algos.experiments.tracking import tracker as tracking_lib
from tff_algos.features import spec as spec_lib
from tff_algos.models import registry as models
from tff_algos.privacy import mechanism, private_algorithm
from tff_algos.rounds import lr_schedule as lr_schedule_lib
from tff_algos.runtimes import registry as runtimes
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.runtimes.distributed import process_group
from tff_algos.stores import objects
from tff_algos.training import continuation as continuation_lib
from tff_algos.training import loop

# Sections that affect speed, what is sent elsewhere, and what is approved.
_WITHOUT_EFFECT = ('runtime', 'tracking', 'drift', 'gate')


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
  """Config of an experiment; see `configs/`.

  Attributes:
    name: Title of the report.
    dataset: Dataset that `binaries.preprocess` builds.
    model: Name in `models.registry`, and its options.
    algorithm: Name in `algorithms.registry`, and its options.
    training: Number of rounds; intervals of evaluation and checkpoints.
    runtime: Runtime and its options; affects speed, never results.
    attack: Byzantine clients and their attack.
    privacy: Differential privacy.
    lr_schedule: Schedule of the algorithm's learning rates.
    continuation: The earlier run that training goes on from.
    drift: Thresholds of the drift of the data from those of the parent run.
    seed: Base of all randomness in training, >= 0.
    gate: Comparison with the exported models before a release.
    tracking: Service that metrics, pictures and models are sent to; affects no
      result.
  """

  name: str
  dataset: options.DatasetConfig
  model: config_lib.Named
  algorithm: config_lib.Named
  training: loop.TrainingConfig
  runtime: runtimes.RuntimeConfig = runtimes.RuntimeConfig()
  attack: attacks.AttackConfig = attacks.AttackConfig()
  privacy: mechanism.PrivacyConfig = mechanism.PrivacyConfig()
  lr_schedule: lr_schedule_lib.LrScheduleConfig = (
    lr_schedule_lib.LrScheduleConfig()
  )
  continuation: continuation_lib.ContinuationConfig = (
    continuation_lib.ContinuationConfig()
  )
  drift: drift_lib.DriftConfig = drift_lib.DriftConfig()
  seed: int = 0
  gate: gate_config.GateConfig = gate_config.GateConfig()
  tracking: tracking_lib.TrackingConfig = tracking_lib.TrackingConfig()

  def __post_init__(self):
    checks.check_int('seed', self.seed, minimum=0)
    algorithms.periods_of(self.algorithm, self.lr_schedule)
    if self.privacy.is_on:
      _check_private(self)


def _check_private(config: ExperimentConfig) -> None:
  """Raises ConfigError for choices from clients' data that add no noise."""
  for option, value, off, why in (
    (
      'attack.name',
      config.attack.name,
      attacks.NONE,
      'attackers do not clip, so noise for clipped updates covers nobody',
    ),
    (
      'training.restarts.num_restarts',
      config.training.restarts.num_restarts,
      1,
      "a restart is chosen by the clients' losses",
    ),
    (
      'training.selection.patience',
      config.training.selection.patience,
      0,
      "early stopping is decided by the clients' validation scores",
    ),
    (
      'training.dropout_rate',
      config.training.dropout_rate,
      0.0,
      'a mean divides by the number of clients that are expected, and a round '
      'of which all drop out would show that by its lack of noise',
    ),
  ):
    if value != off:
      raise errors.ConfigError(
        f'config.{option} is {value!r}, which a private training does not '
        f'allow: {why}; set it to {off!r}, or privacy.noise_multiplier and '
        'privacy.target_epsilon to 0'
      )


def parse(values: Any) -> ExperimentConfig:
  """Returns the experiment of a config file.

  Args:
    values: The `ConfigDict` that the file's `get_config` returned, with the
      overrides of the command line.

  Raises:
    ConfigError: If a key is unknown or a value out of range.
  """
  return parse_plain(values.to_dict())


def parse_plain(values: Mapping[str, Any]) -> ExperimentConfig:
  """Returns the experiment of plain, nested values, such as of `config.json`.

  Raises:
    ConfigError: If a key is unknown or a value out of range.
  """
  sections = {'model': models, 'algorithm': algorithms}
  named = {
    name: registry.parse_config(values[name])
    for name, registry in sections.items()
    if name in values
  }
  return config_lib.from_dict(ExperimentConfig, {**values, **named})


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the sections of a config that affect results, and the title.

  Args:
    values: Plain, nested values, such as of `config.json`.
  """
  return {
    key: value for key, value in values.items() if key not in _WITHOUT_EFFECT
  }


def to_published(config: ExperimentConfig) -> dict[str, Any]:
  """Returns the config as released; a private one without `seed`.

  Noise follows from the seed, and a hash of it is inverted by trying seeds.
  """
  values = config_lib.to_dict(config)
  if config.privacy.is_on:
    del values['seed']
  return values


def config_hash(config: ExperimentConfig) -> str:
  """Returns the hash of all published sections that affect results."""
  return config_lib.config_hash(effective(to_published(config)))


def unpublished_hash(config: ExperimentConfig) -> str:
  """Returns the hash of the same sections with the seed, not to be released."""
  return config_lib.config_hash(effective(config_lib.to_dict(config)))


def identity(
  config: ExperimentConfig, dataset: dataset_lib.FederatedDataset
) -> dict[str, Any]:
  """Returns the config entries that affect training state, and the dataset."""
  dropout_rate = config.training.dropout_rate
  return {
    'seed': config.seed,
    'model': config_lib.to_dict(config.model),
    'algorithm': config_lib.to_dict(config.algorithm),
    'dataset_version': dataset.version,
    **({'dropout_rate': dropout_rate} if dropout_rate else {}),
    **config.training.restarts.identity(),
    **config.attack.identity(),
    **config.privacy.identity(config.training.num_rounds),
    **config.lr_schedule.identity(),
  }


def refer_to_dataset(workdir: str | os.PathLike[str], address: str) -> None:
  """Makes a published dataset that of a workdir, in place of a folder.

  Args:
    workdir: The workdir, made if it is missing.
    address: Address of the dataset or of a workdir that has it.

  Raises:
    ConfigError: If it is no address, or the workdir has another dataset.
  """
  path = pathlib.Path(workdir, 'dataset')
  if not objects.is_address(address):
    raise errors.ConfigError(
      f'the dataset {address!r} must be an address of an object store, such as '
      's3://bucket/digits; one on this machine is built in the workdir'
    )
  if path.is_dir() or layout.read_address(path) not in (None, address):
    raise errors.ConfigError(
      f'{path} is a dataset already, another than {address}; take another '
      'workdir, or remove it if no checkpoint was trained on it'
    )
  durable.make_folder(path.parent)
  layout.write_address(path, address)


def open_dataset(
  workdir: str | os.PathLike[str],
) -> dataset_lib.FederatedDataset:
  """Opens the dataset of a workdir.

  Raises:
    DataError: If it is missing, damaged, or has no participating client.
  """
  dataset = dataset_lib.FederatedDataset.open(pathlib.Path(workdir, 'dataset'))
  if not dataset.client_ids:
    raise errors.DataError(
      f'{dataset.path} has no client with labelled examples, so it can be '
      'scored alone (binaries.score); build it again when there are labels'
    )
  return dataset


def build_model(
  config: ExperimentConfig,
  schema: schema_lib.Schema,
  spec: spec_lib.FeatureSpec,
) -> model_lib.Model:
  """Builds the model for examples of a schema and a feature spec.

  Raises:
    ConfigError: If no model accepts them, or the config does not fit them.
  """
  return models.build_model(
    config.model,
    task=schema.task,
    input_shape=tuple(schema.x_shape),
    num_outputs=schema.num_classes or 1,
    input_dtype=tf.int32 if schema.x_dtype == 'int32' else tf.float32,
    label_shape=schema.y_shape,
    special_ids=spec.special_ids,
    vocabulary=spec.words(),
  )


def build_algorithm(
  config: ExperimentConfig, dataset: dataset_lib.FederatedDataset
) -> algorithm_lib.FederatedAlgorithm:
  """Builds the algorithm, attacked or private as configured, for a dataset."""
  built = algorithms.build_algorithm(
    config.algorithm,
    build_model(config, dataset.schema, dataset.feature_spec),
    run_seed=config.seed,
    schedule=config.lr_schedule,
  )
  attacked = attacks.attack(
    built, config.attack, find_attackers(config, dataset)
  )
  if not config.privacy.is_on:
    return attacked
  _check_public_features(dataset)
  facts = private_algorithm.Facts(
    int(np.count_nonzero(dataset.num_examples(schema_lib.TRAIN))),
    config.training.num_rounds,
    config_lib.config_hash(
      {
        **identity(config, dataset),
        **config.continuation.identity(),
        'seed': None,  # A built algorithm serves runs of several.
      }
    ),
  )
  return private_algorithm.make_private(attacked, config.privacy, facts)


def _check_public_features(dataset: dataset_lib.FederatedDataset) -> None:
  """Raises ConfigError if inputs are encoded by values of clients' data."""
  recipe = dataset.manifest['recipe']
  options_ = recipe['source']['options']
  is_public = (
    recipe.get('fitted_from')
    or options_.get('vocabulary_file')
    or options_.get('alphabet')
  )
  fitted = dataset.feature_spec.fitted
  if fitted and not is_public:
    raise errors.ConfigError(
      f'config.privacy: the encoding of {", ".join(fitted)} is fitted on the '
      "clients' training examples, without noise, and exported; take the "
      "encoding 'plain' or 'hash', or values of public data "
      '(config.dataset.fitted_from, or vocabulary_file of the source)'
    )


def find_attackers(
  config: ExperimentConfig, dataset: dataset_lib.FederatedDataset
) -> np.ndarray:
  """Returns a mask of the Byzantine clients, bool `[num_clients]`."""
  return attacks.attackers(config.attack, dataset.client_ids, config.seed)


def open_group(
  config: ExperimentConfig,
  dataset: dataset_lib.FederatedDataset,
  cluster: cluster_lib.Cluster,
  saved_rounds: Sequence[int],
) -> contextlib.AbstractContextManager[process_group.ProcessGroup]:
  """Opens the process group of a distributed experiment.

  Args:
    config: The experiment; equal in all processes but for `runtime`.
    dataset: Dataset, open.
    cluster: The processes.
    saved_rounds: Rounds with a checkpoint; equal in all processes.

  Raises:
    ConfigError: If there are speeds of another number of processes, or too few
      shards.
  """
  speeds, owns_shards = config.runtime.peer_speeds, config.runtime.peer_shards
  num_processes = len(cluster.addresses)
  num_shards = dataset.manifest['num_shards']
  if speeds and num_processes and len(speeds) != num_processes:
    raise errors.ConfigError(
      f'config.runtime.peer_speeds={speeds} must have a speed for each of the '
      f'{num_processes} processes of TF_CONFIG'
    )
  if owns_shards and num_shards < num_processes:
    raise errors.ConfigError(
      f'config.runtime.peer_shards=True needs a shard for each of the '
      f'{num_processes} processes of TF_CONFIG, and '
      f'{dataset.address or dataset.path} has {num_shards}: build it anew with '
      'a larger config.dataset.num_shards'
    )
  shared = {
    'experiment': identity(config, dataset),
    'training': config_lib.to_dict(config.training),
    'speeds': list(speeds),
    'owns_shards': owns_shards,
    'checkpoints': saved_rounds,
    'tensorflow': tf.__version__,
  }
  return process_group.open_group(
    cluster._replace(speeds=speeds, owns_shards=owns_shards),
    shared,
    config.runtime.peer_timeout_seconds,
    config.runtime.trust_network,
  )
