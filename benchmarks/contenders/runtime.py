"""A runtime of ours, driven through the public contract only."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks import algorithms, preparation
from benchmarks import workload as workload_lib
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.data import schema
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.training import client_state_store, loop

BuildRuntime = Callable[
  [algorithm_lib.FederatedAlgorithm, int], cohort_lib.Runtime
]


class MemorySource:
  """A population held in memory; a `cohort.ClientSource`.

  Attributes:
    population: Clients of equal size.
  """

  def __init__(self, inputs: workload_lib.Inputs):
    """Takes over the examples of the inputs."""
    self._x, self._y = inputs.examples
    num_examples = self._y.shape[1]
    self._source = np.zeros(num_examples, np.int32)
    client_ids = inputs.workload.client_ids
    self.population = algorithm_lib.Population(
      client_ids, np.full(len(client_ids), num_examples, np.int64)
    )

  def examples(self, client_index: int) -> schema.Examples:
    """Returns one client's examples."""
    held = client_index % len(self._y)
    return schema.Examples(self._x[held], self._y[held], self._source)

  def stream(self) -> Iterator[schema.Examples]:
    """Yields the examples of all clients in their order."""
    yield from map(self.examples, range(self.population.num_clients))


class RuntimeContender:
  """Runs whole rounds: plan, phases, server update, states committed."""

  def __init__(
    self,
    inputs: workload_lib.Inputs,
    algorithm: algorithm_lib.FederatedAlgorithm,
    runtime: cohort_lib.Runtime,
  ):
    """Starts from the initial states.

    Args:
      inputs: Of the case.
      algorithm: What to run.
      runtime: Entered already.
    """
    self._algorithm = algorithm
    self._runtime = runtime
    self._seed = inputs.workload.seed
    self._source = MemorySource(inputs)
    population = self._source.population
    self._state = loop.initial_server_state(
      algorithm, population.num_clients, self._seed
    )
    # No checkpoint is written, so nothing goes into the folder.
    self._store = loop.build_store(
      algorithm,
      population,
      self._seed,
      inputs.folder,
      client_state_store.MEMORY,
    )

  def prepare(self, round_num: int) -> None:
    """Does nothing: the order of the examples is drawn in the round."""

  def run_round(self, round_num: int) -> None:
    """Runs and commits one round."""
    self._state, _ = loop.run_round(
      self._algorithm,
      self._runtime,
      self._source,
      self._store,
      self._state,
      round_num,
      self._seed,
    )
    self._store.commit()

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model, or the cluster models stacked."""
    return preparation.cluster_weights(self._algorithm, self._state)


@contextlib.contextmanager
def open_contender(
  inputs: workload_lib.Inputs, build_runtime: BuildRuntime
) -> Iterator[RuntimeContender]:
  """Yields a contender on the runtime that `build_runtime` makes."""
  algorithm = algorithms.build_algorithm(inputs.workload)
  with build_runtime(algorithm, inputs.workload.num_clients) as runtime:
    yield RuntimeContender(inputs, algorithm, runtime)
