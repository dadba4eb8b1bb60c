"""One TensorFlow graph for a block of clients; the fast simulator.

A block of clients is stacked on axis 0. Where the model turns into batched
matrix products the clients are vectorized; convolutions are looped over inside
the graph. Blocks stream through the cores: while some compute, the next is
read, and only sums, and what a phase collects, are kept. Sums are added in the
order of the blocks, so timing changes no bit. Graphs are traced once per
phase, whatever the cohort.
"""

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import tensorflow as tf
from absl import logging

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks
from tff_algos.numerics import trees
from tff_algos.runtimes import blocks, devices, vectorization
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.stages import aggregation, composer

Structure = Any

# Collected results are worth a line of the log from here on.
_LARGE_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class VectorizedConfig:
  """Options of the vectorized runtime; they change speed, not results.

  Attributes:
    clients_per_block: Clients stacked at a time; 0 chooses by the size of the
      model, the number of cores and the memory budget.
    num_parallel_blocks: Blocks computed at the same time; 0 is one a core, or
      one a device for convolutions, whose loop fills the cores itself.
    memory_budget_mib: Most memory for the blocks together, in MiB, by
      estimate; 0 for no limit.
    devices: Where blocks are computed, in turn, such as `('GPU:0', 'GPU:1')`;
      none takes all GPUs, or the CPU if there is no GPU.
    gpu_memory_limit_mib: Most memory to take of each GPU, in MiB; 0 grows on
      demand.
  """

  clients_per_block: int = 0
  num_parallel_blocks: int = 0
  memory_budget_mib: int = 0
  devices: tuple[str, ...] = ()
  gpu_memory_limit_mib: int = 0

  def __post_init__(self):
    checks.check_int('clients_per_block', self.clients_per_block, minimum=0)
    checks.check_int('num_parallel_blocks', self.num_parallel_blocks, minimum=0)
    checks.check_int('memory_budget_mib', self.memory_budget_mib, minimum=0)
    checks.check_int(
      'gpu_memory_limit_mib', self.gpu_memory_limit_mib, minimum=0
    )


@dataclasses.dataclass(frozen=True)
class _Graphs:
  """The traced functions of one phase, and the types that they take."""

  types: composer.PhaseTypes
  make_message: Any
  work: Any
  server_update: Any


class VectorizedRuntime:
  """Runs phases as TensorFlow graphs over blocks of stacked clients."""

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    num_clients: int,
    config: VectorizedConfig | None = None,
  ):
    """Prepares the graphs of an algorithm.

    Args:
      algorithm: What to run.
      num_clients: Size of the population.
      config: Options.

    Raises:
      ConfigError: If a device does not exist.
      StageTypeError: If two stages of a phase do not fit.
    """
    self._algorithm = algorithm
    self._num_clients = num_clients
    self._types = composer.check_algorithm(algorithm, num_clients)
    self._config = config or VectorizedConfig()
    self._devices = devices.choose(self._config.devices)
    self._weights = algorithm.cluster_model.weights_spec()
    self._graphs: dict[str, _Graphs] = {}

  def __enter__(self) -> 'VectorizedRuntime':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._graphs.clear()

  def run(
    self,
    phase: algorithm_lib.Phase,
    server_state: Structure,
    cohort: cohort_lib.Cohort,
  ) -> cohort_lib.PhaseOutput:
    """Runs one phase call, see `cohort.Runtime`.

    Raises:
      ConfigError: If the memory budget does not hold one client a block.
    """
    graphs = self._graphs_of(phase)
    message = graphs.make_message(server_state)
    sums, collections_, states = None, [], []
    for block_sums, collection, block_states in self._stream(
      functools.partial(graphs.work, message),
      self._load_blocks(phase, graphs.types, cohort),
    ):
      sums = block_sums if sums is None else trees.add(sums, block_sums)
      collections_.append(cohort_lib.to_numpy(collection))
      states.append(cohort_lib.to_numpy(block_states))
    new_state, server_metrics = graphs.server_update(
      server_state, sums, cohort_lib.concatenate(collections_)
    )
    return cohort_lib.PhaseOutput(
      server_state=cohort_lib.to_numpy(new_state),
      client_states=cohort_lib.concatenate(states),
      server_metrics=cohort_lib.to_numpy(server_metrics),
      client_metrics=dict(cohort_lib.to_numpy(sums['metrics'])),
      num_invalid=int(sums['num_invalid']),
    )

  @property
  def _num_parallel(self) -> int:
    if self._config.num_parallel_blocks:
      return self._config.num_parallel_blocks
    if not self._algorithm.cluster_model.vectorizes:
      return len(self._devices)
    return max(len(self._devices), len(os.sched_getaffinity(0)))

  def _load_blocks(
    self,
    phase: algorithm_lib.Phase,
    types: composer.PhaseTypes,
    cohort: cohort_lib.Cohort,
  ) -> Iterator[composer.Clients]:
    """Yields the blocks of a cohort; reads each when it is asked for."""
    size = self._config.clients_per_block or blocks.clients_per_block(
      cohort_size=cohort.size,
      weight_bytes=blocks.num_bytes(self._weights),
      bytes_per_client=blocks.client_bytes(
        self._weights,
        types.clients.data,
        types.clients.client_state,
        cohort.largest_client(),
      ),
      num_parallel=self._num_parallel,
      budget_bytes=self._config.memory_budget_mib << 20,
    )
    for start in range(0, cohort.size, size):
      yield cohort.load(
        start,
        min(start + size, cohort.size),
        uses_client_state=phase.uses_client_state,
        # Graphs take any capacity, so none is wasted on padding.
        capacity=lambda largest: max(largest, 1),
      )

  def _stream(
    self,
    work: Callable[[composer.Clients], Structure],
    loaded: Iterator[composer.Clients],
  ) -> Iterator[Structure]:
    """Yields `work` of every block in order, several computed at a time."""

    def work_on(device, block):
      with tf.device(device):
        return work(block)

    pool = futures.ThreadPoolExecutor(self._num_parallel)
    running: collections.deque[futures.Future] = collections.deque()
    try:
      for block, device in zip(loaded, itertools.cycle(self._devices)):
        running.append(pool.submit(work_on, device, block))
        if len(running) > self._num_parallel:
          yield running.popleft().result()
      while running:
        yield running.popleft().result()
    finally:
      pool.shutdown(cancel_futures=True)

  def _graphs_of(self, phase: algorithm_lib.Phase) -> _Graphs:
    if phase.name not in self._graphs:
      self._graphs[phase.name] = self._build(phase)
    return self._graphs[phase.name]

  def _build(self, phase: algorithm_lib.Phase) -> _Graphs:
    # Evaluation phases are not the algorithm's own.
    types = self._types.get(phase.name) or composer.check_phase(
      phase,
      *composer.state_specs(self._algorithm, self._num_clients),
      composer.data_spec(self._algorithm.cluster_model),
    )
    graph = functools.partial(tf.function, autograph=False)

    @functools.partial(
      graph, input_signature=[types.message, _any_length(types.clients)]
    )
    def work(message, clients):
      one = functools.partial(composer.client_work, phase, message)
      outputs = composer.guard(
        self._map_clients(phase.name, one, clients, types.output),
        clients.client_state,
      )
      return (
        composer.partial_sums(phase, outputs),
        composer.collected(phase, clients.client_index, outputs),
        outputs.client_state,
      )

    sums, collection, _ = work.get_concrete_function().structured_outputs
    aggregates = tf.nest.map_structure(
      lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), (sums, collection)
    )
    self._announce(phase, types)
    return _Graphs(
      types=types,
      make_message=graph(
        phase.make_message, input_signature=[types.server_state]
      ),
      work=work,
      server_update=graph(
        functools.partial(composer.server_update, phase),
        input_signature=[types.server_state, *aggregates],
      ),
    )

  def _announce(
    self, phase: algorithm_lib.Phase, types: composer.PhaseTypes
  ) -> None:
    """Says how much memory a phase needs that keeps every client's result."""
    each = sum(
      blocks.num_bytes(types.output.result[field])
      for field, aggregator in phase.aggregation.items()
      if isinstance(aggregator, aggregation.Collect)
    )
    if each * self._num_clients >= _LARGE_BYTES:
      logging.info(
        'Phase %r keeps the results of all its clients: %.1f MiB each, '
        '%.0f MiB if all %d clients take part.',
        phase.name,
        each / (1 << 20),
        each * self._num_clients / (1 << 20),
        self._num_clients,
      )

  def _map_clients(self, phase_name, function, clients, output_type):
    if self._algorithm.cluster_model.vectorizes:
      return vectorization.map_clients(
        phase_name, function, clients, output_type
      )
    return tf.map_fn(function, clients, fn_output_signature=output_type)


def _any_length(spec: Structure) -> Structure:
  """Returns the type of a stack of any number of values of a type."""
  return tf.nest.map_structure(
    lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec
  )
