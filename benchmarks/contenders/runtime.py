"""A runtime of ours, driven through the public contract only.

Forms: `runtime`, its name, with its default options; of `pjrt`, `devices`: one
CPU device uses all cores for each operation; of several logical ones each has a
thread of its own.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks import algorithms, preparation
from benchmarks import workload as workload_lib
from benchmarks.contenders import program
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.runtimes import client_sources
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import registry as runtimes
from tff_algos.runtimes.vectorized import devices
from tff_algos.training import client_state_store, loop


def build_source(
  workload: workload_lib.Workload, examples: tuple[np.ndarray, np.ndarray]
) -> client_sources.ArraySource:
  """Returns the population of a workload; its examples become read-only."""
  arrays = *examples, np.zeros(workload.num_examples, np.int32)
  for array in arrays:
    array.flags.writeable = False  # Else each client would have a copy.
  x, y, source = arrays
  held = [(*one, source) for one in zip(x, y, strict=True)]
  return client_sources.ArraySource(
    {
      client_id: held[i % len(held)]
      for i, client_id in enumerate(workload.client_ids)
    }
  )


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
    self._source = build_source(inputs.workload, inputs.examples)
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
def _open(
  inputs: workload_lib.Inputs, form: Mapping[str, Any]
) -> Iterator[RuntimeContender]:
  if form['runtime'] != 'tff':
    devices.prepare_threads()
  names = tuple(f'CPU:{i}' for i in range(form.get('devices', 0)))
  algorithm = algorithms.build_algorithm(inputs.workload)
  with runtimes.build_runtime(
    runtimes.RuntimeConfig(form['runtime'], names),
    algorithm,
    inputs.workload.num_clients,
  ) as runtime:
    yield RuntimeContender(inputs, algorithm, runtime)


if __name__ == '__main__':
  program.main(_open)
