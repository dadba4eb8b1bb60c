"""Vectorization of client work over stacked clients, or a loop in its place."""

import contextlib
import functools
import re
from collections.abc import Callable, Generator

import tensorflow as tf
from absl import logging
from tensorflow.python.ops.parallel_for.pfor import (
  PFor,
  RegisterPFor,
  WhileV2,
  _pfor_converter_registry,
  _PforInput,
  _stack,
  wrap,
)

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core.structures import Structure

# TensorFlow's errors for an operation without a converter, and for one whose
# converter fails (if the size of an output depends on the client, say).
_OP_TYPE = re.compile(r"(?:vectorization defined for|of op) '?(\w+)")


_expand_dynamic = _PforInput.expanddim_inputs_for_broadcast


def _expand(pfor_input):
  """Gives stacked inputs of a broadcast the rank of the largest, by axes of 1.

  TensorFlow's own method builds some ten operations an input, which compute
  ranks when the graph runs: half of the time of tracing.
  """
  inputs = pfor_input.inputs
  ranks = [one.t.shape.rank for one in inputs]
  if None in ranks:
    _expand_dynamic(pfor_input)
    return
  row_ranks = [
    rank - one.is_stacked for rank, one in zip(ranks, inputs, strict=True)
  ]
  for i, one in enumerate(inputs):
    if one.is_stacked:
      tensor = one.t
      for _ in range(max(row_ranks) - row_ranks[i]):
        tensor = tf.expand_dims(tensor, 1)
      inputs[i] = wrap(tensor, True)


_PforInput.expanddim_inputs_for_broadcast = _expand  # pyright: ignore[reportAttributeAccessIssue]


@RegisterPFor('TopKV2')
def _convert_top_k(pfor_input):
  """Converter of top-k, which works on the last axis and needs no loop.

  `tf.argsort` uses top-k. TensorFlow 2.14 has no converter for it.
  """
  values, indices = tf.raw_ops.TopKV2(
    input=pfor_input.stacked_input(0),
    k=pfor_input.unstacked_input(1),
    sorted=pfor_input.get_attr('sorted'),
  )
  return [wrap(values, True), wrap(indices, True)]


@RegisterPFor('L2Loss')
def _convert_l2_loss(pfor_input):
  """Converter of the L2 loss by rows, which TensorFlow 2.14 lacks."""
  rows = pfor_input.stacked_input(0)
  axes = tf.range(1, tf.rank(rows))
  return wrap(tf.reduce_sum(tf.square(rows), axes) / 2, True)


def _convert_identity(pfor_input):
  """Converter of an identity, which needs no operation."""
  return pfor_input.input(0)


_pfor_converter_registry['Identity'] = _convert_identity


def _convert_reduction(own, pfor_input):
  """Converter of a reduction, whose axes are nearly always constants.

  TensorFlow's own shifts them by five operations.
  """
  axes = tf.get_static_value(pfor_input.unstacked_input(1))
  if axes is None:
    return own(pfor_input)
  reduce = getattr(tf.raw_ops, pfor_input.op_type)
  return wrap(
    reduce(
      input=pfor_input.stacked_input(0),
      axis=axes + (axes >= 0).astype(axes.dtype),
      keep_dims=pfor_input.get_attr('keep_dims'),
    ),
    True,
  )


for _op_type in ('All', 'Any', 'Max', 'Mean', 'Min', 'Prod', 'Sum'):
  _pfor_converter_registry[_op_type] = functools.partial(
    _convert_reduction, _pfor_converter_registry[_op_type]
  )


def _size(tensor, axis):
  """Returns the length of an axis, in the graph only if it is unknown."""
  return tensor.shape[axis] or tf.shape(tensor)[axis]


def _convert_sparse_cross_entropy(pfor_input):
  """Converter of cross-entropies with sparse labels, by merging two axes.

  TensorFlow's own computes each shape by some ten operations.
  """
  pfor_input.stack_inputs()
  logits, labels = (pfor_input.stacked_input(i) for i in range(2))
  losses, gradient = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
    features=tf.reshape(logits, [-1, _size(logits, 2)]),
    labels=tf.reshape(labels, [-1]),
  )
  return [
    wrap(tf.reshape(losses, tf.shape(labels)), True),
    wrap(tf.reshape(gradient, tf.shape(logits)), True),
  ]


_pfor_converter_registry['SparseSoftmaxCrossEntropyWithLogits'] = (
  _convert_sparse_cross_entropy
)


def _convert_matmul(own, pfor_input):
  """Converter of a matrix product with a common right matrix, as one product.

  TensorFlow's own splits the shape by ten operations.
  """
  left, right = (pfor_input.input(i) for i in range(2))
  if right.is_stacked or pfor_input.get_attr('transpose_a'):
    return own(pfor_input)
  stack = left.t
  product = tf.matmul(
    tf.reshape(stack, [-1, _size(stack, 2)]),
    right.t,
    transpose_b=pfor_input.get_attr('transpose_b'),
  )
  shape = [_size(stack, 0), stack.shape[1] or -1, _size(product, 1)]
  return wrap(tf.reshape(product, shape), True)


_pfor_converter_registry['MatMul'] = functools.partial(
  _convert_matmul, _pfor_converter_registry['MatMul']
)


def _convert_squeeze(pfor_input):
  """Converter of a squeeze of all axes, such as that of `tf.norm`.

  TensorFlow's own squeezes the axis of the rows, too, if there is one row.
  """
  rows = pfor_input.stacked_input(0)
  axes = pfor_input.get_attr('squeeze_dims') or [
    i for i, size in enumerate(pfor_input.op.inputs[0].shape) if size == 1
  ]
  axes = [axis + 1 if axis >= 0 else axis for axis in axes]
  return wrap(tf.squeeze(rows, axes) if axes else rows, True)


_pfor_converter_registry['Squeeze'] = _convert_squeeze


def _convert_inline(function, outer, num_rows, inputs):
  """Converts the operations of a function in place.

  Args:
    function: Concrete function or the like.
    outer: The conversion around it.
    num_rows: Number of rows, int32 `[]`.
    inputs: Wrapped arguments.

  Returns:
    Wrapped outputs.
  """
  inner = PFor(
    loop_var=outer.loop_var,
    loop_len=num_rows,
    pfor_ops=function.graph.get_operations(),
    fallback_to_while_loop=outer.fallback_to_while_loop,
    all_indices=outer.all_indices,
    all_indices_partitioned=outer.all_indices_partitioned,
    pfor_config=outer.pfor_config,
  )
  for old, new in zip(function.graph.inputs, inputs, strict=True):
    inner._add_conversion(old, new)
  outputs = function.graph.outputs[: len(function.function_type.flat_outputs)]
  return [inner._convert_helper(output) for output in outputs]


def _function(pfor_input, attribute):
  """Returns the function that an attribute of the operation names."""
  name = tf.compat.as_bytes(pfor_input.get_attr(attribute).name)
  return pfor_input.op.graph._get_function(name)


def _convert_call(pfor_input):
  """Converter of a function's call, in whose place its operations are.

  TensorFlow's own makes a function of them, by way of AutoGraph.
  """
  return _convert_inline(
    _function(pfor_input, 'f'),
    pfor_input.pfor,
    pfor_input.pfor.loop_len_vector[0],
    pfor_input.inputs,
  )


for _op_type in ('PartitionedCall', 'StatefulPartitionedCall'):
  _pfor_converter_registry[_op_type] = _convert_call


class _CommonLoop:
  """Converter of a loop that all rows leave in the same step.

  It becomes one loop with a vectorized body. TensorFlow's own converter handles
  rows that leave in different steps: it carries an array of final values beside
  every loop variable, branches in every step, and takes one step more. The time
  of small models is dominated by the dispatch of operations.
  """

  def __init__(self, pfor_input):
    """Traces nothing yet."""
    self._input = pfor_input
    self._cond, self._body = (
      _function(pfor_input, name) for name in ('cond', 'body')
    )
    self._own = WhileV2(pfor_input)
    self._is_common = True
    self._to_stack: list[int] = []

  def convert(self):
    """Returns the outputs; else those of TensorFlow's own converter."""
    if any(one.t.dtype == tf.variant for one in self._input.inputs):
      return self._own()  # Arrays; it knows how they are stacked.
    self._input.stack_inputs(self._trained())
    while True:
      # Traced separately, as it may have to be discarded.
      loop = tf.function(self._loop, autograph=False)
      start = [one.t for one in self._input.inputs]
      loop.get_concrete_function(*start)
      if not self._is_common:
        return self._own()
      if not self._to_stack:
        return self._wrap(loop(*start))
      self._input.stack_inputs(self._to_stack)

  def _trained(self) -> list[int]:
    """Returns the variables that will have to be stacked, nearly always.

    They are the floating ones that the body changes, such as weights. A guess
    that saves a discarded trace.
    """
    graph = self._body.graph
    return [
      i
      for i, (old, new) in enumerate(
        zip(graph.inputs, graph.outputs, strict=True)
      )
      if old.dtype.is_floating and _source(new) is not old
    ]

  def _loop(self, *start):
    return tf.while_loop(
      self._is_running,
      self._step,
      start,
      shape_invariants=tuple(self._own._output_shapes()),
      parallel_iterations=self._input.get_attr('parallel_iterations'),
    )

  def _is_running(self, *values):
    (running,) = self._call(self._cond, values)
    self._is_common = not running.is_stacked
    return tf.reduce_any(running.t)

  def _step(self, *values):
    pairs = list(
      zip(self._call(self._body, values), self._input.inputs, strict=True)
    )
    self._to_stack = [
      i for i, (new, old) in enumerate(pairs) if new.is_stacked > old.is_stacked
    ]
    if self._to_stack:  # A retry follows; the values of this one are unused.
      return values
    return tuple(
      new.t
      if new.is_stacked == old.is_stacked
      else _stack(new.t, self._num_rows()).t
      for new, old in pairs
    )

  def _call(self, function, values):
    return _convert_inline(
      function, self._input.pfor, self._num_rows(), self._wrap(values)
    )

  def _num_rows(self):
    """Returns the number of rows, as a constant if it is static."""
    for one in self._input.inputs:
      if one.is_stacked and one.t.shape.rank and one.t.shape[0]:
        return tf.constant(one.t.shape[0])
    return self._input.pfor.loop_len_vector[0]

  def _wrap(self, values):
    return [
      wrap(value, one.is_stacked)
      for value, one in zip(values, self._input.inputs, strict=True)
    ]


def _source(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the tensor that identities pass on."""
  while tensor.op.type == 'Identity':
    (tensor,) = tensor.op.inputs
  return tensor


for _op_type in ('While', 'StatelessWhile'):
  _pfor_converter_registry[_op_type] = lambda pfor_input: _CommonLoop(
    pfor_input
  ).convert()


def map_stacked(
  function: Callable[[Structure], Structure], stacked: Structure
) -> Structure:
  """Maps `function` over the rows of a stack, in one batched pass in a graph.

  Unlike `tf.vectorized_map`, it gathers no row to trace the function.

  Args:
    function: Pure function of one row's structure.
    stacked: Structure of tensors `[rows, ...]`.

  Returns:
    Structure of tensors `[rows, ...]`.

  Raises:
    ValueError, NotImplementedError: If TensorFlow cannot vectorize an
      operation, which TensorFlow's own fallback would loop over silently.
  """
  stacked = tf.nest.map_structure(tf.convert_to_tensor, stacked)
  row = tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype), stacked
  )
  traced = tf.function(
    function, autograph=False, input_signature=[row]
  ).get_concrete_function()
  rows = tf.nest.flatten(stacked)
  num_rows = _size(rows[0], 0)
  mapping = PFor(
    loop_var=tf.compat.v1.placeholder_with_default(0, []),
    loop_len=num_rows,
    pfor_ops=[],
    fallback_to_while_loop=False,
  )
  outputs = _convert_inline(
    traced,
    mapping,
    num_rows,
    [wrap(leaf, True) for leaf in rows]
    + [wrap(leaf, False) for leaf in traced.captured_inputs],
  )
  return tf.nest.pack_sequence_as(
    traced.structured_outputs, [mapping._unwrap_or_tile(one) for one in outputs]
  )


def map_clients(
  phase_name: str,
  client_work: Callable[[Structure], algorithm_lib.ClientOutput],
  clients: Structure,
  output_type: algorithm_lib.ClientOutput,
) -> algorithm_lib.ClientOutput:
  """Runs client work on a stack of clients, vectorized if possible.

  If it contains an operation that cannot be vectorized, the graph loops over
  the clients, and a warning names the operation.

  Args:
    phase_name: Name of the phase, for the warning.
    client_work: Pure function of one client.
    clients: Structure of tensors `[clients, ...]`.
    output_type: Output type for one client, of `tf.TensorSpec`s.

  Raises:
    StageTypeError: If neither is possible; names the operation.
  """
  try:
    with _without_errors_in_log():
      return map_stacked(client_work, clients)
  except (ValueError, NotImplementedError) as error:
    named = _OP_TYPE.search(str(error))
    reason = (
      f'TensorFlow cannot vectorize its operation {named[1]!r}'
      if named
      else f'TensorFlow cannot vectorize it ({str(error).splitlines()[0]})'
    )
  _check_sizes(phase_name, reason, output_type)
  logging.warning(
    "Phase %r, stage 'client_work': %s. Clients are looped over inside the "
    'graph instead (tf.map_fn): the same numbers, but slower.',
    phase_name,
    reason,
  )
  return tf.map_fn(client_work, clients, fn_output_signature=output_type)


def _check_sizes(
  phase_name: str, reason: str, output_type: algorithm_lib.ClientOutput
) -> None:
  """Raises StageTypeError if the sizes of clients' results may differ."""
  for field, value in {**output_type.result, **output_type.metrics}.items():
    for spec in tf.nest.flatten(value):
      if not spec.shape.is_fully_defined():
        raise errors.StageTypeError(
          f"phase {phase_name!r}: stage 'client_work' runs neither vectorized "
          f'({reason}) nor in a loop over the clients: its {field!r} has '
          f'shape {spec.shape}, so clients may return different sizes, which '
          'do not stack. Return a fixed size, known when the graph is built '
          '(pad it, then tf.ensure_shape), or do without that operation'
        )


@contextlib.contextmanager
def _without_errors_in_log() -> Generator[None]:
  """Suppresses TensorFlow's error logs of a failed conversion.

  The exception has the same information.
  """

  def is_no_error(record):
    return record.levelno < tf.compat.v1.logging.ERROR

  logger = tf.get_logger()
  logger.addFilter(is_no_error)
  try:
    yield
  finally:
    logger.removeFilter(is_no_error)
