"""Vectorized runtime: TensorFlow graphs over blocks of clients.

A cohort is divided into chunks, one or more a core; a graph processes a chunk
block by block (`phase_graph`), while other cores or devices process other
chunks. Examples stay on the device, or are prefetched for the next chunk; only
sums and collected fields are kept. Sums are added in the order of the chunks,
so timing changes no bit. Graphs are traced once per phase, for any cohort.
"""

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, phase_types
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes.distributed import process_group
from tff_algos.runtimes.vectorized import blocks, phase_graph
from tff_algos.runtimes.vectorized import devices as devices_lib
from tff_algos.runtimes.vectorized import rows as rows_lib

# Smallest block on a GPU, which small operations leave idle; not measured.
_FEWEST_OF_A_GPU = 4
# Smallest size of collected results that is logged.
_LARGE_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class VectorizedConfig:
  """Options of the vectorized runtime.

  They change speed, and results by no more than the rounding of sums.

  Attributes:
    clients_per_block: Clients computed at once; 0 chooses by the size of the
      model, or of the upload if it is larger, and the memory budget: at most
      50, on a GPU at least 4, and always 1 for convolutions, fused recurrences
      and the multi-head attention of Keras. 1 disables vectorization: slower
      rounds, but graphs that are traced in less than half of the time.
    num_parallel_blocks: Blocks computed at the same time; 0 for one a core, or
      one a GPU.
    memory_budget_mib: Estimated memory limit for examples, states and blocks
      together, in MiB; 0 for no limit. Up to 1 GiB of each split that was read
      from disk is kept beside it.
    resident_mib: Memory limit for a split whose examples stay on each device
      between rounds, in MiB; a larger split is read in every round. 0 keeps
      none.
  """

  clients_per_block: int = 0
  num_parallel_blocks: int = 0
  memory_budget_mib: int = 0
  resident_mib: int = 1024

  def __post_init__(self):
    for name in (
      'clients_per_block',
      'num_parallel_blocks',
      'memory_budget_mib',
      'resident_mib',
    ):
      checks.check_int(name, getattr(self, name), minimum=0)


class _Chunk(NamedTuple):
  """Loaded clients of a cohort, and their graph on a device."""

  device: str
  client_index: np.ndarray
  work: Callable[[], Structure]


class VectorizedRuntime:
  """Runs phases as TensorFlow graphs over blocks of clients."""

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    num_clients: int,
    config: VectorizedConfig | None = None,
    devices: tuple[str, ...] = (),
    group: process_group.ProcessGroup = process_group.ALONE,
  ):
    """Prepares the graphs of an algorithm.

    Args:
      algorithm: The algorithm to run.
      num_clients: Size of the population.
      config: Options.
      devices: Devices for blocks, used in turn; none selects all GPUs, or the
        CPU if there is no GPU.
      group: The processes that share each cohort.

    Raises:
      ConfigError: If a device does not exist; if several clients of a model
        that does not vectorize are to be computed at once; or if the algorithm
        needs the runtime `tff`.
      StageTypeError: If two stages of a phase do not fit.
    """
    self._algorithm = algorithm
    self._num_clients = num_clients
    aggregation.refuse_processes(algorithm.phases, 'the runtime vectorized')
    phase_types.check_algorithm(algorithm, num_clients)
    self._config = config or VectorizedConfig()
    self._group = group
    self._devices = devices_lib.choose(devices)
    self._weights = algorithm.cluster_model.weights_spec()
    self._vectorizes = self._choose_form()
    self._graphs: dict[str, phase_graph.PhaseGraphs] = {}
    self._resident = rows_lib.ResidentRows()
    self._pool = futures.ThreadPoolExecutor(self._num_parallel)

  def __enter__(self) -> 'VectorizedRuntime':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._pool.shutdown()
    self._graphs.clear()
    self._resident.clear()

  def run(
    self,
    phase: algorithm_lib.Phase,
    server_state: Structure,
    cohort: cohort_lib.Cohort,
  ) -> cohort_lib.PhaseOutput:
    """Runs one phase call, see `cohort.Runtime`.

    Raises:
      ConfigError: If the memory budget does not hold one client a block.
      LostProcessError: If another process of the group is lost.
      RuntimeFailureError: If a device has too little memory.
    """
    graphs = self._graphs_of(phase)
    server_state = tf.nest.map_structure(tf.convert_to_tensor, server_state)
    message = graphs.make_message(server_state)
    ours = cohort.part(self._group.positions(cohort))
    if ours.size:
      try:
        sums, *kept = self._compute(phase, graphs, message, ours)
      except tf.errors.ResourceExhaustedError as error:
        raise errors.RuntimeFailureError(
          f'phase {phase.name!r}: the device has too little memory '
          f'({error.message.splitlines()[0]}). Lower '
          'config.runtime.vectorized.clients_per_block, with which the run '
          'resumes, or let no other process use the device'
        ) from error
    else:
      sums, *kept = graphs.nothing()
    sums = self._group.sum(sums)
    collections_, states = (self._group.gather(parts, cohort) for parts in kept)
    new_state, server_metrics = graphs.server_update(
      server_state, sums, _concatenate(collections_)
    )
    return cohort_lib.PhaseOutput(
      server_state=self._group.agree(cohort_lib.to_numpy(new_state)),
      client_states=states,
      server_metrics=cohort_lib.to_numpy(server_metrics),
      client_metrics=dict(cohort_lib.to_numpy(sums['metrics'])),
      num_invalid=int(sums['num_invalid']),
    )

  def _compute(
    self,
    phase: algorithm_lib.Phase,
    graphs: phase_graph.PhaseGraphs,
    message: Structure,
    cohort: cohort_lib.Cohort,
  ) -> tuple[Structure, list[Structure], list[Structure]]:
    """Returns the sums of a cohort, and in parts its collection and states."""
    sums, collections_, states = None, [], []
    for chunk, (chunk_sums, collection, chunk_states) in self._stream(
      self._load_chunks(phase, graphs, message, cohort)
    ):
      self._group.check()
      sums = chunk_sums if sums is None else trees.add(sums, chunk_sums)
      collections_.append(self._to_host(collection))
      states.append((chunk.client_index, chunk_states))
    return sums, collections_, states

  def _to_host(self, collection: Structure) -> Structure:
    """Copies a chunk's collected results to host memory."""
    if not self._has_gpus:
      return collection
    with tf.device('CPU:0'):
      return tf.nest.map_structure(tf.identity, collection)

  def _choose_form(self) -> bool:
    """Returns and logs whether the clients of a block are computed at once."""
    vectorizes = self._algorithm.cluster_model.vectorizes
    block = self._config.clients_per_block
    if block > 1 and not vectorizes:
      raise errors.ConfigError(
        f'config.runtime.vectorized.clients_per_block is {block}, but the '
        f'model {self._algorithm.cluster_model.name!r} has convolutions, a '
        'fused recurrence or the multi-head attention of Keras, so its clients '
        'are computed one after the other: leave it 0'
      )
    vectorizes = vectorizes and block != 1
    logging.info(
      'Clients are computed %s, %d such loops at a time.',
      'several at once' if vectorizes else 'one after the other',
      self._num_parallel,
    )
    return vectorizes

  @property
  def _has_gpus(self) -> bool:
    return any('GPU' in name for name in self._devices)

  @property
  def _num_parallel(self) -> int:
    if self._config.num_parallel_blocks:
      return self._config.num_parallel_blocks
    if self._has_gpus:
      return len(self._devices)
    return max(len(self._devices), len(os.sched_getaffinity(0)))

  def _stays_resident(self, cohort: cohort_lib.Cohort) -> bool:
    """Returns whether the split of a cohort stays on the devices."""
    if not self._group.reads_all:
      return False
    limit = self._config.resident_mib << 20
    if self._config.memory_budget_mib:
      # The other half is for computation.
      limit = min(limit, self._config.memory_budget_mib << 19)
    return rows_lib.worth_keeping(cohort) and self._split_bytes(cohort) <= limit

  def _split_bytes(self, cohort: cohort_lib.Cohort) -> int:
    data = phase_types.data_spec(self._algorithm.cluster_model)
    num_rows = int(cohort.source.population.num_examples.sum())
    return num_rows * trees.num_bytes((data.x, data.y))

  def _choose_sizes(
    self,
    types: phase_types.PhaseTypes,
    cohort: cohort_lib.Cohort,
    stays_resident: bool,
  ) -> blocks.Sizes:
    """Returns block and chunk sizes of a cohort, for which it makes room."""
    data = types.clients.data
    capacity = int(cohort.num_examples.max())
    carried = 2 * trees.num_bytes(types.clients.client_state)
    if not stays_resident:
      carried += capacity * trees.num_bytes((data.x, data.y))
    trained = blocks.trained_bytes(self._weights, types.output.result)
    wanted = self._config.clients_per_block if self._vectorizes else 1
    costs = blocks.Costs(
      weight_bytes=trained,
      working_bytes=blocks.working_bytes(trained, data, capacity),
      carried_bytes=carried,
    )
    budget = self._config.memory_budget_mib << 20
    if budget and stays_resident:
      budget -= self._split_bytes(cohort)
    sizes = blocks.choose(
      cohort_size=cohort.size,
      costs=costs,
      num_parallel=self._num_parallel,
      clients_per_block=wanted,
      fewest_clients=_FEWEST_OF_A_GPU if self._has_gpus else 1,
      budget_bytes=budget,
    )
    if budget:
      # Sizes, and so the order of sums, do not depend on what is resident.
      self._resident.make_room(
        cohort.source if stays_resident else None,
        budget
        - blocks.needed_bytes(cohort.size, costs, self._num_parallel, sizes),
      )
    return sizes

  def _load_chunks(
    self,
    phase: algorithm_lib.Phase,
    graphs: phase_graph.PhaseGraphs,
    message: Structure,
    cohort: cohort_lib.Cohort,
  ) -> Iterator[_Chunk]:
    """Yields the chunks of a cohort; loads each on demand."""
    stays_resident = self._stays_resident(cohort)
    sizes = self._choose_sizes(graphs.types, cohort, stays_resident)
    # Sorted by size, so that chunks take equally long, and the clients of a
    # block are nearly equal.
    largest_first = np.argsort(-cohort.num_examples, kind='stable')
    dealt = blocks.deal(largest_first, sizes, self._num_parallel)
    for positions, device in zip(
      dealt, itertools.cycle(self._devices), strict=False
    ):
      clients = cohort.describe(positions, phase.uses_client_state)
      if stays_resident:
        rows, spans = self._resident.load(
          cohort.source, clients.client_index, device
        )
      else:
        rows, spans = rows_lib.concatenate(
          cohort.examples(clients.client_index)
        )
      graph = graphs.client_work(len(positions), sizes.clients_per_block)
      with tf.device(device):
        bound = graph.bind(message, rows, clients._replace(data=spans))
      work = functools.partial(graph.run, bound)
      yield _Chunk(device, clients.client_index, work)

  def _stream(
    self, loaded: Iterator[_Chunk]
  ) -> Iterator[tuple[_Chunk, Structure]]:
    """Yields every chunk and its result in order, with several in flight."""

    def work_on(chunk):
      with tf.device(chunk.device):
        return chunk, chunk.work()

    running: collections.deque[futures.Future] = collections.deque()
    try:
      for chunk in loaded:
        running.append(self._pool.submit(work_on, chunk))
        if len(running) > self._num_parallel:
          yield running.popleft().result()
      while running:
        yield running.popleft().result()
    finally:
      for future in running:
        future.cancel()
      futures.wait(running)

  def _graphs_of(self, phase: algorithm_lib.Phase) -> phase_graph.PhaseGraphs:
    phase_types.check_own(self._algorithm, phase)
    if phase.name not in self._graphs:
      types = phase_types.types_of(self._algorithm, phase, self._num_clients)
      self._announce(phase, types)
      self._graphs[phase.name] = phase_graph.PhaseGraphs(
        phase, types, self._vectorizes
      )
    return self._graphs[phase.name]

  def _announce(
    self, phase: algorithm_lib.Phase, types: phase_types.PhaseTypes
  ) -> None:
    """Logs the memory of a phase that collects every client's result."""
    each = sum(
      trees.num_bytes(types.output.result[field])
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


def _concatenate(parts: list[Structure]) -> Structure:
  """Concatenates the chunks' collected results along axis 0.

  Tensors stay tensors: a NumPy array would be copied into one, which for
  collected models is a copy of all of them.
  """
  with tf.device('CPU:0'):
    return tf.nest.map_structure(
      lambda *leaves: tf.concat(leaves, axis=0), *parts
    )
