"""Lowers the client work of a phase to HLO, for one size of block and client.

The graph is traced once for all sizes; XLA's program is lowered for each, which
takes a tenth of a second.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core.structures import Structure
from tff_algos.rounds import client_rows, composer, phase_types
from tff_algos.runtimes.pjrt import stacked_convolutions
from tff_algos.runtimes.vectorized import vectorization


class Lowered(NamedTuple):
  """A program of one block, as it crosses to the worker.

  Attributes:
    name: Phase and sizes.
    hlo: Serialized HLO, uint8 `[bytes]`.
    arguments: Dtype and shape of each argument, in the order of `(message,
      rows, client states, block)`.
    outputs: Dtype and shape of each output, in the order of
      `composer.aggregate`: the sums, the collected fields, the new states.
  """

  name: str
  hlo: np.ndarray
  arguments: list[tuple[str, list[int]]]
  outputs: list[tuple[str, list[int]]]


class Block(NamedTuple):
  """Arguments of a block of clients.

  Attributes:
    clients: Clients stacked `[block, ...]`; their data are spans, their states
      are `()`: they are arguments of their own.
    is_real: False for a row that fills the block, bool `[block]`.
  """

  clients: composer.Clients
  is_real: Structure


class PhaseLowering:
  """The client work of a phase, traced once and lowered for each size.

  Attributes:
    types: Types of the phase.
    output_types: `composer.aggregate`'s outputs as symbolic tensors.
  """

  def __init__(
    self,
    phase: algorithm_lib.Phase,
    types: phase_types.PhaseTypes,
    vectorizes: bool,
  ):
    """Traces the phase.

    Args:
      phase: The phase.
      types: Types of the phase.
      vectorizes: Whether the clients of a block are computed at once; else one
        after the other.
    """
    self.types = types
    self._phase = phase
    self._vectorizes = vectorizes
    rows = client_rows.Rows(types.clients.data.x, types.clients.data.y)
    clients, states = tf.nest.map_structure(
      lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype),
      (
        types.clients._replace(data=client_rows.SPAN, client_state=()),
        types.clients.client_state,
      ),
    )
    block = Block(clients, tf.TensorSpec([None], tf.bool))
    self._signature = (types.message, rows, states, block)
    # Traced outside of XLA's context: in it, TensorFlow makes a function of
    # each vectorized map, and the gradient of one needs shapes of its inside,
    # for which XLA would fix the values of all of its arguments.
    traced = tf.function(
      self._work,
      autograph=False,
      input_signature=[
        tf.TensorSpec([], tf.int32),
        *tf.nest.flatten(self._signature),
      ],
    ).get_concrete_function()
    self._compiled = tf.function(traced, autograph=False, jit_compile=True)
    self.output_types = traced.structured_outputs

  def lower(self, num_rows: int, block_size: int, capacity: int) -> Lowered:
    """Lowers the phase.

    Args:
      num_rows: Rows of the split.
      block_size: Clients of a block.
      capacity: Rows that a client's examples are padded to.

    Raises:
      ConfigError: If XLA does not know an operation; names it.
    """
    message, rows, *stacked = self._signature
    sized = [
      *tf.nest.flatten(message),
      *(_with_size(leaf, num_rows) for leaf in rows),
      *(_with_size(leaf, block_size) for leaf in tf.nest.flatten(stacked)),
    ]
    # Sizes are read from the values: XLA's shapes are static.
    zeros = [tf.zeros(leaf.shape, leaf.dtype) for leaf in sized]
    try:
      words = self._compiled.experimental_get_compiler_ir(
        tf.constant(capacity), *zeros
      )(stage='hlo_serialized')
    except (tf.errors.OpError, ValueError, TypeError) as error:
      raise errors.ConfigError(
        f'phase {self._phase.name!r}: XLA cannot compile its client work, so '
        "config.runtime.name='pjrt' cannot run it; take 'vectorized'. XLA "
        f'said: {str(error).strip().splitlines()[0]}'
      ) from error
    form = 'at once' if self._vectorizes else 'in a loop'
    return Lowered(
      f'{self._phase.name} {form}, {num_rows} rows, {block_size} x {capacity}',
      np.frombuffer(_renamed(words), np.uint8),
      [_describe(leaf) for leaf in zeros],
      [_describe(leaf) for leaf in self._outputs(block_size)],
    )

  @property
  def state_types(self) -> list[tuple[str, list[int]]]:
    """Returns dtype and shape of each leaf of a client's state."""
    return [
      _describe(leaf)
      for leaf in tf.nest.flatten(self.types.clients.client_state)
    ]

  def _outputs(self, block_size: int) -> list[tf.TensorSpec]:
    """Returns the types of the outputs for a size of block."""
    sums, *kept = self.output_types
    return [
      *tf.nest.flatten(sums),
      *(_with_size(leaf, block_size) for leaf in tf.nest.flatten(kept)),
    ]

  def _work(self, capacity: tf.Tensor, *leaves: tf.Tensor) -> Structure:
    message, rows, states, block = tf.nest.pack_sequence_as(
      self._signature, leaves
    )
    clients = block.clients._replace(client_state=states)

    # Outside of a loop over clients, in which XLA knows no constants.
    places = tf.range(capacity)

    def work_on_one(client: composer.Clients) -> algorithm_lib.ClientOutput:
      data = client_rows.SpanData(rows, client.data, places)  # pyright: ignore[reportArgumentType]
      return composer.client_work(
        self._phase,
        message,
        client._replace(data=data),
      )

    if self._vectorizes:
      with stacked_convolutions.vectorized():
        outputs = vectorization.map_clients(
          self._phase.name, work_on_one, clients, self.types.output
        )
    else:
      outputs = tf.map_fn(
        work_on_one, clients, fn_output_signature=self.types.output
      )
    return composer.aggregate(
      self._phase,
      clients.client_index,
      outputs,
      states,
      block.is_real,
    )


def _renamed(hlo: bytes) -> bytes:
  """Returns HLO without TensorFlow's names.

  They count the functions of a process, so that the cache on disk would not
  know a program that was traced after others.
  """
  module = hlo_pb2.HloModuleProto.FromString(hlo)  # pyright: ignore[reportAttributeAccessIssue]
  module.name, module.id = 'client_work', 0
  for i, computation in enumerate(module.computations):
    computation.name = f'computation_{i}'
    if computation.id == module.entry_computation_id:
      module.entry_computation_name = computation.name
    for instruction in computation.instructions:
      instruction.ClearField('metadata')
  return module.SerializeToString(deterministic=True)


def _with_size(leaf: tf.Tensor | tf.TensorSpec, size: int) -> tf.TensorSpec:
  return tf.TensorSpec([size, *leaf.shape[1:]], leaf.dtype)


def _describe(leaf: tf.Tensor | tf.TensorSpec) -> tuple[str, list[int]]:
  return leaf.dtype.name, [size or 0 for size in leaf.shape]
