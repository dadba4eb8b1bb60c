"""The client work of a phase as one graph: a loop over blocks of clients.

A block returns only sums, collected fields and client states, so a graph needs
the memory of one block for any number of clients.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import client_rows, composer, phase_types
from tff_algos.runtimes.vectorized import graph_call, vectorization


class PhaseGraphs:
  """The graphs of a phase, each traced once.

  Attributes:
    types: Types of the phase.
    make_message: server state -> message.
    server_update: (server state, sums, collection) -> (state, metrics), see
      `composer.server_update`.
  """

  def __init__(
    self,
    phase: algorithm_lib.Phase,
    types: phase_types.PhaseTypes,
    vectorizes: bool,
  ):
    """Traces nothing yet.

    Args:
      phase: The phase.
      types: Types of the phase.
      vectorizes: Whether the clients of a block are computed all at once, as
        batched matrix products; else a block is of one client, as for
        convolutions on a CPU.
    """
    self.types = types
    self.make_message = graph_call.GraphCall(types.stages.make_message)
    self.server_update = graph_call.GraphCall(types.stages.server_update)
    self._client_work = functools.cache(
      functools.partial(build_client_graph, phase, types, vectorizes)
    )

  def client_work(
    self, num_clients: int, clients_per_block: int
  ) -> graph_call.GraphCall:
    """Returns the graph for some clients; see `build_client_graph`.

    There are two: one for whole blocks, any number of them, and one for the
    remainder of a cohort.

    Args:
      num_clients: A multiple of `clients_per_block`, or less than that.
      clients_per_block: Clients computed at once.
    """
    size = None if num_clients % clients_per_block else clients_per_block
    return self._client_work(size)

  def nothing(self) -> tuple[Structure, list[Structure], list[Structure]]:
    """Returns sums, and in parts the collection and states, of no clients."""
    sums, collection, states = tf.nest.map_structure(
      lambda spec: np.zeros(
        [n or 0 for n in spec.shape], spec.dtype.as_numpy_dtype
      ),
      (
        self.types.sums,
        self.types.collection,
        _stack(self.types.clients.client_state, None),
      ),
    )
    return sums, [collection], [(np.zeros([0], np.int32), states)]


def build_client_graph(
  phase: algorithm_lib.Phase,
  types: phase_types.PhaseTypes,
  vectorizes: bool,
  clients_per_block: int | None,
) -> graph_call.GraphCall:
  """Traces the graph of a phase's client work.

  Args:
    phase: The phase.
    types: Types of the phase.
    vectorizes: As of `PhaseGraphs`.
    clients_per_block: Block size; the number of clients must be a multiple of
      it. All shapes are then static, which saves their computation at run time,
      for a small model a third of the operations. None for one block of all
      clients.

  Returns:
    (message, `Rows`, stacked `Clients` whose data are spans) -> result of
    `composer.aggregate` over all the clients.
  """
  clients_type = types.clients._replace(data=client_rows.SPAN)
  rows_type = client_rows.Rows(types.clients.data.x, types.clients.data.y)
  signature = [types.message, rows_type, _stack(clients_type, None)]
  work_on_block = _build_block(phase, types, vectorizes)
  if clients_per_block is None:
    return graph_call.trace(work_on_block, signature)
  block_graph = tf.function(
    work_on_block,
    input_signature=[*signature[:-1], _stack(clients_type, clients_per_block)],
    autograph=False,
  )
  block_types = block_graph.get_concrete_function().structured_outputs

  def work(message, rows, clients):
    num_blocks = tf.shape(clients.client_index)[0] // clients_per_block

    def step(i, sums, kept):
      start = i * clients_per_block
      block = tf.nest.map_structure(
        lambda leaf: _rows(leaf, start, clients_per_block), clients
      )
      block_sums, *block_kept = block_graph(message, rows, block)
      kept = tf.nest.map_structure(
        lambda array, leaf: array.write(i, leaf), kept, block_kept
      )
      return i + 1, trees.add(sums, block_sums), kept

    start = (
      tf.constant(0),
      trees.zeros(block_types[0]),
      tf.nest.map_structure(
        functools.partial(_array, num_blocks), list(block_types[1:])
      ),
    )
    _, sums, kept = tf.while_loop(
      lambda i, *_: i < num_blocks, step, start, parallel_iterations=1
    )
    return sums, *tf.nest.map_structure(lambda array: array.concat(), kept)

  return graph_call.trace(work, signature)


def _build_block(
  phase: algorithm_lib.Phase, types: phase_types.PhaseTypes, vectorizes: bool
) -> Callable[..., Structure]:
  """Returns (message, rows, clients) -> `composer.aggregate` of a block."""

  def work_on_block(message, rows, block):
    places = tf.range(tf.maximum(tf.reduce_max(block.data.size), 1))
    one = functools.partial(types.stages.client_work, message, rows, places)
    if vectorizes:
      outputs = vectorization.map_clients(phase.name, one, block, types.output)
    else:
      outputs = _stack_one(one(trees.take(block, 0)))
    return composer.aggregate(
      phase, block.client_index, outputs, block.client_state
    )

  return work_on_block


def _stack(spec: Structure, size: int | None) -> Structure:
  """Returns the type of a stack of `size` values; None for any size."""
  return tf.nest.map_structure(
    lambda leaf: tf.TensorSpec([size, *leaf.shape], leaf.dtype), spec
  )


def _rows(leaf: tf.Tensor, start: tf.Tensor, size: int) -> tf.Tensor:
  """Returns `leaf[start : start + size]`, with a static size."""
  rest = leaf.shape[1:]
  return tf.slice(
    leaf, [start, *[0] * rest.rank], [size, *(n or -1 for n in rest)]
  )


def _array(size: tf.Tensor, leaf: tf.Tensor) -> tf.TensorArray:
  return tf.TensorArray(
    leaf.dtype,
    size,
    infer_shape=False,
    element_shape=[None, *leaf.shape[1:]],
  )


def _stack_one(structure: Structure) -> Structure:
  """Returns a stack of one; leaves that are one tensor remain one tensor."""
  stacked: dict[Any, tf.Tensor] = {}
  return tf.nest.map_structure(
    lambda leaf: stacked.setdefault(leaf.ref(), leaf[tf.newaxis]), structure
  )
