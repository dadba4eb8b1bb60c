"""Runtime `pjrt`: client work on any accelerator that today's jax knows.

TensorFlow 2.14, to which TFF 0.87 ties this environment, knows the GPUs of
CUDA 11.8. A phase's client work is lowered to HLO here, and compiled and run by
a worker process with another environment. Examples and client states stay on
its devices; sums and collected fields come back. The message is made and the
server is updated here, as in the vectorized runtime.
"""

import contextlib
import functools
import itertools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, phase_types
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes.pjrt import (
  held_states,
  lowering,
  pjrt_config,
  pjrt_connection,
)
from tff_algos.runtimes.vectorized import blocks, graph_call
from tff_algos.runtimes.vectorized import rows as rows_lib

# Most clients of a block on a GPU or TPU, where a block may take a quarter of
# the memory. Blocks of 1,000 were faster than small ones on an H200 ("On an
# accelerator" in benchmarks/README.md); larger ones were not measured.
_MOST = 1000


class _Block(NamedTuple):
  """A block of clients whose work was started.

  Attributes:
    client_index: Its clients, int32 `[n]`.
    is_real: False for a row that fills the block, bool `[block]`.
    old: States before; None if the phase uses none.
    new: States after, likewise.
  """

  client_index: np.ndarray
  is_real: np.ndarray
  old: held_states.Stack | None
  new: held_states.Stack | None


class _PhaseProgram:
  """A phase: its graphs on this side, and its lowered client work."""

  def __init__(
    self,
    phase: algorithm_lib.Phase,
    types: phase_types.PhaseTypes,
    vectorizes: bool,
  ):
    self.lowering = lowering.PhaseLowering(phase, types, vectorizes)
    self.make_message = graph_call.GraphCall(types.stages.make_message)
    self._kept = tf.nest.map_structure(
      lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype),
      self.lowering.output_types[:2],
    )
    self.num_sums = len(tf.nest.flatten(self._kept[0]))
    self.server_update = graph_call.GraphCall(types.stages.server_update)
    # Lowering takes a tenth of a second.
    self.lower = functools.cache(self.lowering.lower)

  def check(self) -> None:
    """Raises ConfigError if XLA does not know an operation; names it."""
    self.lower(num_rows=1, block_size=1, capacity=1)

  def pack(self, leaves: list[np.ndarray]) -> tuple[Structure, Structure]:
    """Returns sums and collection of the worker's results."""
    return tf.nest.pack_sequence_as(self._kept, leaves)


class PjrtRuntime:
  """Runs the client work of phases in a worker process with jax."""

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    num_clients: int,
    config: pjrt_config.PjrtConfig | None = None,
    devices: tuple[str, ...] = (),
    connection: pjrt_connection.Connection | None = None,
  ):
    """Prepares the programs of an algorithm.

    Args:
      algorithm: The algorithm to run.
      num_clients: Size of the population.
      config: Options.
      devices: Devices such as `'GPU:0'`, among which blocks are divided; none
        for all GPUs or TPUs, or one CPU.
      connection: The worker; None for one of its own.

    Raises:
      ConfigError: If the algorithm needs the runtime `tff`.
      StageTypeError: If two stages of a phase do not fit.
    """
    aggregation.refuse_processes(algorithm.phases, 'the runtime pjrt')
    self._algorithm = algorithm
    self._num_clients = num_clients
    phase_types.check_algorithm(algorithm, num_clients)
    self._config = config or pjrt_config.PjrtConfig()
    self._connection = connection or pjrt_connection.Connection(
      self._config, devices
    )
    self._programs: dict[str, _PhaseProgram] = {}
    self._is_checked = False
    # Splits on the device: name, spans and number of rows.
    self._splits: weakref.WeakKeyDictionary[
      cohort_lib.ClientSource, tuple[str, rows_lib.Span, int]
    ] = weakref.WeakKeyDictionary()
    self._numbers = itertools.count()
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'PjrtRuntime':
    with contextlib.ExitStack() as stack:
      stack.enter_context(self._connection)
      if self._connection.platform == 'cpu':
        logging.info(
          "On a CPU the runtime 'vectorized', the default, took less CPU time "
          'where both were measured (benchmarks/README.md).'
        )
      logging.info(
        'The clients of a block are computed %s '
        "(config.runtime.pjrt.form=%r; 'auto' loops over them on a CPU alone, "
        'of models that do not vectorize, such as those with convolutions).',
        'at once' if self._vectorizes else 'one after the other',
        self._config.form,
      )
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._stack.close()
    self._splits.clear()
    self._programs.clear()

  @property
  def accelerator(self) -> str:
    """Returns the kind of its devices and the version of jax; '' for a CPU."""
    if self._connection.platform == 'cpu':
      return ''
    return self._connection.device_kind

  def run(
    self,
    phase: algorithm_lib.Phase,
    server_state: Structure,
    cohort: cohort_lib.Cohort,
  ) -> cohort_lib.PhaseOutput:
    """Runs one phase call, see `cohort.Runtime`.

    Raises:
      ConfigError: If XLA does not know an operation of the client work.
      RuntimeFailureError: If the worker died or failed.
    """
    server_state = tf.nest.map_structure(tf.convert_to_tensor, server_state)
    program = self._prepare(phase, server_state)
    blocks_ = self._start(phase, program, cohort)
    sums, collection = program.pack(self._connection.finish())
    is_real = np.concatenate([block.is_real for block in blocks_])
    collection = tf.nest.map_structure(
      lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[is_real], collection
    )
    new_state, server_metrics = program.server_update(
      server_state, sums, collection
    )
    return cohort_lib.PhaseOutput(
      server_state=cohort_lib.to_numpy(new_state),
      client_states=[
        (block.client_index, self._states(program, block)) for block in blocks_
      ],
      server_metrics=cohort_lib.to_numpy(server_metrics),
      # Copies: views would keep the whole answer of the worker.
      client_metrics=tf.nest.map_structure(np.array, dict(sums['metrics'])),
      num_invalid=int(sums['num_invalid']),
    )

  def _start(
    self,
    phase: algorithm_lib.Phase,
    program: _PhaseProgram,
    cohort: cohort_lib.Cohort,
  ) -> list[_Block]:
    """Starts all blocks of a phase call, and returns them."""
    split, spans, num_rows = self._keep_split(cohort.source)
    types = program.lowering.state_types if phase.uses_client_state else []
    started: list[_Block] = []
    for group in deal(
      cohort.num_examples,
      self._choose_size(program, cohort),
      cohort.source.population.num_examples,
    ):
      size = group.positions.shape[1]
      lowered = program.lower(num_rows, size, group.capacity)
      self._connection.compile(lowered)
      clients = cohort.describe(group.positions.ravel(), False)
      data: Any = rows_lib.Span(*(leaf[clients.client_index] for leaf in spans))
      made = [
        _Block(
          client_index=index[real],
          is_real=real,
          old=self._held(cohort, index[real], types, size) if types else None,
          new=self._connection.new_stack(types, size) if types else None,
        )
        for index, real in zip(
          clients.client_index.reshape(group.positions.shape),
          group.is_real,
          strict=True,
        )
      ]
      block = lowering.Block(clients._replace(data=data), group.is_real.ravel())
      self._connection.run(
        lowered,
        ['message', split],
        program.num_sums,
        len(started),
        [block.old for block in made if block.old],
        [block.new for block in made if block.new],
        [
          leaf.reshape(*group.positions.shape, *leaf.shape[1:])
          for leaf in _leaves(block)
        ],
      )
      started += made
    return started

  def _held(
    self,
    cohort: cohort_lib.Cohort,
    client_index: np.ndarray,
    types: Sequence[tuple[str, list[int]]],
    size: int,
  ) -> held_states.Stack:
    """Returns the states of some clients on the device, as a stack."""
    leaves = tf.nest.flatten(cohort.load_states(client_index))
    first = leaves[0]
    if isinstance(first, held_states.HeldLeaf):
      if first.stack.holder is self._connection and first.stack.size == size:
        return first.stack
    elif len(client_index) == size:
      return self._connection.stack(
        types, size, arrays=[np.asarray(leaf) for leaf in leaves]
      )
    rows = [(leaves, row) for row in range(len(client_index))]
    return held_states.gather(self._connection, types, rows, size)

  def _states(self, program: _PhaseProgram, block: _Block) -> Structure:
    """Returns the new states of a block's clients, held or NumPy."""
    if block.new is None:
      return ()
    leaves: list[Any] = block.new.leaves(len(block.client_index))
    if not self._keeps_states(program):
      leaves = [np.asarray(leaf) for leaf in leaves]
    return tf.nest.pack_sequence_as(
      program.lowering.types.clients.client_state, leaves
    )

  def _keeps_states(self, program: _PhaseProgram) -> bool:
    """Returns whether the states of all clients, old and new, fit."""
    each = trees.num_bytes(program.lowering.types.clients.client_state)
    return 4 * self._num_clients * each <= self._connection.memory_bytes

  def _prepare(
    self, phase: algorithm_lib.Phase, server_state: Structure
  ) -> _PhaseProgram:
    """Sends the message, and returns the program of a phase.

    Raises:
      ConfigError: If XLA does not know an operation, of this phase or, before
        the first round, of any other; or if it is another algorithm's.
    """
    phase_types.check_own(self._algorithm, phase)
    if phase.name in self._algorithm.phases and not self._is_checked:
      for name, other in self._algorithm.phases.items():
        if name == algorithm_lib.phase_purpose(name):
          self._program(other).check()
      self._is_checked = True
    program = self._program(phase)
    self._connection.keep(
      'message', _leaves(program.make_message(server_state))
    )
    return program

  @property
  def _vectorizes(self) -> bool:
    """Returns whether the clients of a block are computed at once."""
    if self._config.form == pjrt_config.AUTO:
      # On an H200 the loop was slower even with convolutions ("On an
      # accelerator" in benchmarks/README.md).
      is_cpu = self._connection.platform == 'cpu'
      return self._algorithm.cluster_model.vectorizes or not is_cpu
    return self._config.form == pjrt_config.VECTORIZED

  def _program(self, phase: algorithm_lib.Phase) -> _PhaseProgram:
    if phase.name not in self._programs:
      types = phase_types.types_of(self._algorithm, phase, self._num_clients)
      self._programs[phase.name] = _PhaseProgram(phase, types, self._vectorizes)
    return self._programs[phase.name]

  def _keep_split(
    self, source: cohort_lib.ClientSource
  ) -> tuple[str, rows_lib.Span, int]:
    """Sends a split to the device, once; returns name, spans and rows.

    The device forgets it once nothing refers to the source.
    """
    if source not in self._splits:
      rows, spans = rows_lib.read(source)
      name = f'split {next(self._numbers)}'
      self._connection.keep(name, _leaves(rows))
      forget = weakref.finalize(source, self._connection.forget, name)
      forget.atexit = False
      self._splits[source] = name, spans, len(rows.y)
    return self._splits[source]

  def _choose_size(
    self, program: _PhaseProgram, cohort: cohort_lib.Cohort
  ) -> int:
    """Returns the number of clients of a block."""
    if self._config.clients_per_block:
      return self._config.clients_per_block
    types = program.lowering.types
    trained = blocks.trained_bytes(
      self._algorithm.cluster_model.weights_spec(), types.output.result
    )
    memory = self._connection.device_bytes
    # jax does not know the memory of every device.
    if self._connection.platform == 'cpu' or not memory:
      return blocks.size_of_cache(trained)
    capacity = int(cohort.num_examples.max())
    each = blocks.working_bytes(trained, types.clients.data, capacity)
    return min(max(memory // 4 // each, 1), _MOST)


class Group(NamedTuple):
  """Blocks of a cohort that are padded to the same number of examples.

  Attributes:
    positions: Positions in the cohort, `[num_blocks, block]`.
    is_real: False for a row that fills the last block, of the same shape.
    capacity: Rows that a client's examples are padded to.
  """

  positions: np.ndarray
  is_real: np.ndarray
  capacity: int


def deal(
  num_examples: np.ndarray, block_size: int, population: np.ndarray
) -> list[Group]:
  """Divides a cohort into blocks of nearly equal clients, largest first.

  Few sizes of blocks and clients, because each is compiled: the only block of a
  cohort is a power of two, several are as large as allowed, and clients between
  two powers of two are padded to the largest of the population between them. So
  clients of equal sizes are not padded.

  Args:
    num_examples: Examples of each client, int64 `[cohort]`.
    block_size: Most clients of a block.
    population: Examples of each client of the population, int64.
  """
  octaves = _octaves(population)
  order = np.argsort(-num_examples, kind='stable')
  size = min(block_size, 1 << (len(order) - 1).bit_length())
  num_blocks = -(-len(order) // size)
  padding = num_blocks * size - len(order)
  positions = np.pad(order, (0, padding), mode='edge').reshape(-1, size)
  is_real = (np.arange(num_blocks * size) < len(order)).reshape(-1, size)
  groups = []
  for octave, some in itertools.groupby(
    range(num_blocks),
    key=_octaves(num_examples[positions[:, 0]]).__getitem__,
  ):
    numbers = list(some)
    capacity = max(int(population[octaves == octave].max()), 1)
    groups.append(Group(positions[numbers], is_real[numbers], capacity))
  return groups


def _octaves(num_examples: np.ndarray) -> np.ndarray:
  """Returns the power of two at or above each, of 0 that of 1."""
  return np.ceil(np.log2(np.maximum(num_examples, 1))).astype(int)


def _leaves(structure: Structure) -> list[np.ndarray]:
  return [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]
