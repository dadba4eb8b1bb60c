"""Sessions: the open dataset, runtime, stores and checkpoints of a workdir."""

import contextlib
import os
import pathlib
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import evaluator
from tff_algos.experiments import experiment, runtime_cache
from tff_algos.runtimes import client_sources, interrupts
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.runtimes.vectorized import devices
from tff_algos.training import checkpoint, client_state_store, loop


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

  def restore(self, round_num: int | None = None) -> tuple[int, Any]:
    """Restores a checkpoint into the store.

    Args:
      round_num: Round of the checkpoint; None for the latest.

    Returns:
      The round and the server state.

    Raises:
      CheckpointError: If there is none, or none of that round.
    """
    saved = self.checkpoints.rounds()
    if not saved:
      raise errors.CheckpointError(
        f'{self.workdir} holds no checkpoint; run binaries.train first'
      )
    if round_num is not None and round_num not in saved:
      raise errors.CheckpointError(
        f'{self.workdir} holds no checkpoint of round {round_num}; it has '
        f'those of the rounds {", ".join(map(str, saved))}'
      )
    chosen = saved[-1] if round_num is None else round_num
    template = self.initial_state()
    return chosen, self.checkpoints.restore(chosen, template, self.store)

  def initial_state(self) -> Any:
    """Returns the server state before round 1."""
    return loop.initial_server_state(
      self.algorithm, self.source.population.num_clients, self.config.seed
    )

  def run_round(
    self, server_state: Any, round_num: int
  ) -> tuple[Any, loop.Metrics]:
    """Runs one round; `loop.run_round` with this session's objects and seed."""
    return loop.run_round(
      self.algorithm,
      self.runtime,
      self.source,
      self.store,
      server_state,
      round_num,
      self.config.seed,
    )

  def saved_states(self) -> Iterator[tuple[int, Any]]:
    """Yields round and server state of the initial state and each checkpoint.

    The store then holds the clients' states of that round.

    Raises:
      CheckpointError: If there is no checkpoint.
    """
    saved = self.checkpoints.rounds()
    if not saved:
      self.restore()  # Raises the CheckpointError.
    yield 0, self.initial_state()
    for round_num in saved:
      yield self.restore(round_num)


@contextlib.contextmanager
def open_session(
  config: experiment.ExperimentConfig,
  workdir: str | os.PathLike[str],
  cluster: cluster_lib.Cluster = cluster_lib.ALONE,
  kept: runtime_cache.KeptRuntime | None = None,
) -> Generator[Session]:
  """Opens a session of an experiment in a workdir with its dataset.

  Args:
    config: The experiment.
    workdir: Its folder.
    cluster: Processes of a distributed run; only process 0 may save.
    kept: Runtime cache, emptied if the session fails; not for several
      processes. None for no cache.
  """
  folder = pathlib.Path(workdir)
  devices.prepare_threads()
  devices.prepare_gpus(config.runtime.gpu_memory_limit_mib)
  with contextlib.ExitStack() as stack:
    if kept is None:
      kept = stack.enter_context(runtime_cache.KeptRuntime())
    dataset = stack.enter_context(experiment.open_dataset(folder))
    checkpoints = checkpoint.CheckpointManager(
      folder / 'checkpoints',
      experiment.identity(config, dataset),
      config.training.num_kept_checkpoints,
      read_only=not cluster.is_leader,
    )
    # Before TensorFlow's first use; Ctrl-C may end the wait for the others.
    group = stack.enter_context(
      experiment.open_group(config, dataset, cluster, checkpoints.rounds())
    )
    with interrupts.held():
      source = client_sources.DatasetSource(dataset, schema.TRAIN)
      algorithm, runtime = kept.open(config, dataset, group)
      store = loop.build_store(
        algorithm,
        source.population,
        config.seed,
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
          algorithm, dataset, runtime, store, attackers
        ),
      )
    stack.push(kept.close_after_failure)
    yield opened
