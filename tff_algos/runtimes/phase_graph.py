"""The client work of a phase as one graph: a loop over blocks of clients.

Only sums, what the phase collects, and client states leave a block, so a graph
needs the memory of one block however many clients it is given.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.numerics import trees
from tff_algos.runtimes import rows as rows_lib
from tff_algos.runtimes import vectorization
from tff_algos.stages import composer, phase_types

Structure = Any

# How the clients of a block are computed.
VECTORIZED = 'vectorized'  # All at once, as batched matrix products.
ONE = 'one'  # A block is one client: convolutions on a CPU.
XLA = 'xla'  # One after the other, in a program that XLA has compiled.


def build_client_graph(
  phase: algorithm_lib.Phase, types: phase_types.PhaseTypes, form: str
) -> Callable[..., Structure]:
  """Traces the graph of a phase's client work.

  Args:
    phase: The phase.
    types: Of the phase.
    form: `VECTORIZED`, `ONE` or `XLA`.

  Returns:
    (message, `Rows`, stacked `Clients` whose data are spans, clients per block
    int32 `[]`) -> what `composer.aggregate` returns, over all the clients.
  """
  clients_type = types.clients._replace(
    data=rows_lib.Span(*(tf.TensorSpec([], tf.int32) for _ in range(2)))
  )
  rows_type = rows_lib.Rows(types.clients.data.x, types.clients.data.y)
  signature = [types.message, rows_type, _any_length(clients_type)]
  trace = functools.partial(tf.function, autograph=False)
  work_on_block = _build_block(phase, types.output, form)
  block_graph = trace(work_on_block, input_signature=signature)
  block_types = block_graph.get_concrete_function().structured_outputs

  @functools.partial(
    trace, input_signature=[*signature, tf.TensorSpec([], tf.int32)]
  )
  def work(message, rows, clients, clients_per_block):
    num_clients = tf.shape(clients.client_index)[0]
    num_blocks = -(-num_clients // clients_per_block)

    def step(i, sums, kept):
      start = i * clients_per_block
      block = tf.nest.map_structure(
        lambda leaf: leaf[start : start + clients_per_block], clients
      )
      block_sums, *block_kept = block_graph(message, rows, block)
      kept = tf.nest.map_structure(
        lambda array, leaf: array.write(i, leaf), kept, block_kept
      )
      return i + 1, trees.add(sums, block_sums), kept

    start = (
      tf.constant(0),
      tf.nest.map_structure(_zeros, block_types[0]),
      tf.nest.map_structure(
        functools.partial(_array, num_blocks), list(block_types[1:])
      ),
    )
    _, sums, kept = tf.while_loop(
      lambda i, *_: i < num_blocks, step, start, parallel_iterations=1
    )
    return sums, *tf.nest.map_structure(lambda array: array.concat(), kept)

  return work


def _build_block(
  phase: algorithm_lib.Phase, output_type: Structure, form: str
) -> Callable[..., Structure]:
  """Returns (message, rows, clients) -> `composer.aggregate` of a block."""

  def work_on_one(message, rows, capacity, client):
    data = rows_lib.SpanData(rows, client.data, capacity)
    return composer.client_work(phase, message, client._replace(data=data))

  def work_on_block(message, rows, block):
    one = functools.partial(
      work_on_one, message, rows, tf.reduce_max(block.data.size)
    )
    if form == VECTORIZED:
      outputs = vectorization.map_clients(phase.name, one, block, output_type)
    else:
      outputs = _stack_one(one(trees.take(block, 0)))
    return composer.aggregate(
      phase, block.client_index, outputs, block.client_state
    )

  @functools.partial(tf.function, autograph=False, jit_compile=True)
  def compiled(message, block):
    outputs = tf.map_fn(
      functools.partial(composer.client_work, phase, message),
      block,
      fn_output_signature=output_type,
    )
    return composer.aggregate(
      phase, block.client_index, outputs, block.client_state
    )

  def work_on_dense_block(message, rows, block):
    # XLA compiles once for every shape, so there must be few.
    return compiled(
      message, block._replace(data=rows_lib.pad(rows, block.data))
    )

  return work_on_dense_block if form == XLA else work_on_block


def _any_length(spec: Structure) -> Structure:
  """Returns the type of a stack of any number of values of a type."""
  return tf.nest.map_structure(
    lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec
  )


def _zeros(leaf: tf.Tensor) -> tf.Tensor:
  return tf.zeros(leaf.shape, leaf.dtype)


def _array(size: tf.Tensor, leaf: tf.Tensor) -> tf.TensorArray:
  return tf.TensorArray(
    leaf.dtype,
    size,
    infer_shape=False,
    element_shape=[None, *leaf.shape[1:]],
  )


def _stack_one(structure: Structure) -> Structure:
  """Returns a stack of one; what was the same tensor stays the same tensor."""
  stacked: dict[Any, tf.Tensor] = {}
  return tf.nest.map_structure(
    lambda leaf: stacked.setdefault(leaf.ref(), leaf[tf.newaxis]), structure
  )
