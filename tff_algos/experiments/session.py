"""Sessions: the open dataset, runtime, stores and checkpoints of a workdir."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import evaluator
from tff_algos.experiments import experiment, runtime_cache
from tff_algos.runtimes import client_sources, interrupts
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.runtimes.vectorized import devices
from tff_algos.stores import objects
from tff_algos.training import (
  checkpoint,
  client_state_store,
  continuation,
  loop,
)


class Session(NamedTuple):
  """An open experiment.

  Attributes:
    config: The experiment.
    workdir: Its folder.
    dataset: Dataset, open.
    algorithm: Algorithm, built and checked.
    runtime: Runtime, entered.
    source: Training examples.
    store: Client states, empty.
    checkpoints: Checkpoints of the workdir.
    evaluator: Evaluator on the runtime and the store.
    training: The config's options of training, with rounds that count from the
      first of the runs that continue each other.
    parent: The run that it continues; None for none.
  """

  config: experiment.ExperimentConfig
  workdir: pathlib.Path
  dataset: dataset_lib.FederatedDataset
  algorithm: algorithm_lib.FederatedAlgorithm
  runtime: cohort_lib.Runtime
  source: client_sources.DatasetSource
  store: client_state_store.ClientStateStore
  checkpoints: checkpoint.CheckpointManager
  evaluator: evaluator.Evaluator
  training: loop.TrainingConfig
  parent: continuation.Parent | None = None

  def restore(self, choice: int | str = checkpoint.LAST) -> tuple[int, Any]:
    """Restores a checkpoint into the store.

    Args:
      choice: As of `CheckpointManager.find`.

    Returns:
      The round and the server state.

    Raises:
      CheckpointError: If there is no such checkpoint.
    """
    chosen = self.checkpoints.find(choice)
    template = self.initial_state()
    return chosen, self.checkpoints.restore(
      chosen, template, self.store, maps_all=True
    )

  def initial_state(self) -> Any:
    """Returns the server state before round 1."""
    return loop.initial_server_state(
      self.algorithm, self.source.population.num_clients, self.store.seed
    )

  def run_round(
    self, server_state: Any, round_num: int
  ) -> tuple[Any, loop.Metrics]:
    """Runs one round as training does."""
    return loop.run_round(
      self.algorithm,
      self.runtime,
      self.source,
      self.store,
      server_state,
      round_num,
      self.store.seed,
      self.training.dropout_rate,
    )

  def saved_states(self) -> Iterator[tuple[int, Any]]:
    """Yields round and server state of the initial state and each checkpoint.

    The store then holds the clients' states of that round. A run that continues
    another one starts from the states of its first checkpoint, so that it has
    no initial state.

    Raises:
      CheckpointError: If there is no checkpoint.
    """
    self.checkpoints.find()  # Raises the CheckpointError.
    if not self.parent:
      yield 0, self.initial_state()
    for round_num in self.checkpoints.rounds():
      yield self.restore(round_num)


@contextlib.contextmanager
def open_session(
  config: experiment.ExperimentConfig,
  workdir: str | os.PathLike[str],
  cluster: cluster_lib.Cluster = cluster_lib.ALONE,
  kept: runtime_cache.KeptRuntime | None = None,
  parent: str | os.PathLike[str] = '',
) -> Generator[Session]:
  """Opens a session of an experiment in a workdir with its dataset.

  Args:
    config: The experiment.
    workdir: Its local folder.
    cluster: Processes of a distributed run; only process 0 may save.
    kept: Runtime cache, emptied if the session fails; not for several
      processes. None for no cache.
    parent: Workdir of the run that it continues; empty for that of the config
      and of a run that was started.

  Raises:
    ConfigError: If a folder is an address of an object store.
    UserError: If the config, the dataset or the workdir does not allow it.
  """
  objects.check_local('workdir', workdir)
  folder = pathlib.Path(workdir)
  parent = parent or config.continuation.parent
  objects.check_local('config.continuation.parent', parent)
  found = continuation.find_parent(folder, parent, config.continuation)
  effective = continued(config, found)
  devices.prepare_threads()
  devices.prepare_gpus(config.runtime.gpu_memory_limit_mib)
  with contextlib.ExitStack() as stack:
    if kept is None:
      kept = stack.enter_context(runtime_cache.KeptRuntime())
    dataset = stack.enter_context(experiment.open_dataset(folder))
    checkpoints = checkpoint.CheckpointManager(
      folder / checkpoint.FOLDER,
      experiment.identity(effective, dataset),
      config.training.num_kept_checkpoints,
      client_ids=dataset.client_ids,
      read_only=not cluster.is_leader,
    )
    # Before TensorFlow's first use; Ctrl-C may end the wait for the others.
    group = stack.enter_context(
      experiment.open_group(effective, dataset, cluster, checkpoints.rounds())
    )
    with interrupts.held():
      source = client_sources.DatasetSource(dataset, schema.TRAIN)
      seed = config.seed
      if config.training.restarts.num_restarts > 1 and checkpoints.rounds():
        seed = checkpoints.seed(checkpoints.find())
      algorithm, runtime = kept.open(effective, dataset, group)
      store = loop.build_store(
        algorithm,
        source.population,
        seed,
        checkpoints.states_folder,
        config.training.client_states,
      )
      attackers = experiment.find_attackers(config, dataset)
      opened = Session(
        config=config,
        workdir=folder,
        dataset=dataset,
        algorithm=algorithm,
        runtime=runtime,
        source=source,
        store=store,
        checkpoints=checkpoints,
        evaluator=evaluator.Evaluator(
          algorithm, dataset, runtime, store, attackers, source
        ),
        training=effective.training,
        parent=found,
      )
    stack.push(kept.close_after_failure)
    yield opened


def continued(
  config: experiment.ExperimentConfig, parent: continuation.Parent | None
) -> experiment.ExperimentConfig:
  """Returns the config with rounds that count from the first run.

  Args:
    config: The experiment.
    parent: The run that it continues; None for none.
  """
  if parent is None:
    return config
  first = parent.round_num
  training, schedule = config.training, config.lr_schedule
  if config.continuation.schedule == continuation.ANEW:
    schedule = dataclasses.replace(
      schedule,
      after_rounds=tuple(first + number for number in schedule.after_rounds),
    )
  return dataclasses.replace(
    config,
    training=dataclasses.replace(
      training, num_rounds=first + training.num_rounds
    ),
    lr_schedule=schedule,
  )
