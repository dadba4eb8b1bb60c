"""One batched pass over stacked clients, or a loop where there is none."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.python.ops.parallel_for.pfor import RegisterPFor, wrap

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors

Structure = Any

# How TensorFlow names an operation that it has no converter for, and one whose
# converter refuses (the size of an output depends on the client, say).
_OP_TYPE = re.compile(r"(?:vectorization defined for|of op) '?(\w+)")


@RegisterPFor('TopKV2')
def _convert_top_k(pfor_input):
  """Top-k works on the last axis, so a stack of inputs needs no loop.

  `tf.argsort` is built on it. TensorFlow 2.14 has no converter of its own.
  """
  values, indices = tf.raw_ops.TopKV2(
    input=pfor_input.stacked_input(0),
    k=pfor_input.unstacked_input(1),
    sorted=pfor_input.get_attr('sorted'),
  )
  return [wrap(values, True), wrap(indices, True)]


@RegisterPFor('L2Loss')
def _convert_l2_loss(pfor_input):
  """Half the sum of squares, a row at a time; TensorFlow 2.14 has no converter."""
  rows = pfor_input.stacked_input(0)
  axes = tf.range(1, tf.rank(rows))
  return wrap(tf.reduce_sum(tf.square(rows), axes) / 2, True)


def map_stacked(
  function: Callable[[Structure], Structure], stacked: Structure
) -> Structure:
  """Returns `function` of every row of a stack, in one batched pass.

  Args:
    function: Pure function of one row's structure.
    stacked: Structure of tensors `[rows, ...]`.

  Returns:
    Structure of tensors `[rows, ...]`.

  Raises:
    ValueError, NotImplementedError: If TensorFlow cannot vectorize an
      operation; it would loop over that one by itself and say nothing.
  """
  return tf.vectorized_map(function, stacked, fallback_to_while_loop=False)


def map_clients(
  phase_name: str,
  client_work: Callable[[Structure], algorithm_lib.ClientOutput],
  clients: Structure,
  output_type: algorithm_lib.ClientOutput,
) -> algorithm_lib.ClientOutput:
  """Returns the client work of a stack of clients, vectorized if it can be.

  If it holds an operation that cannot be vectorized, the clients are looped
  over inside the graph, and a warning names the operation.

  Args:
    phase_name: For the warning.
    client_work: Pure function of one client.
    clients: Structure of tensors `[clients, ...]`.
    output_type: What it returns for one client, of `tf.TensorSpec`s.

  Raises:
    StageTypeError: If neither can be done; names the operation.
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
  """Raises StageTypeError if what clients return may differ in size."""
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
def _without_errors_in_log() -> Iterator[None]:
  """Keeps TensorFlow from logging every step that led to a failed conversion.

  The exception says it, too.
  """

  def is_no_error(record):
    return record.levelno < tf.compat.v1.logging.ERROR

  logger = tf.get_logger()
  logger.addFilter(is_no_error)
  try:
    yield
  finally:
    logger.removeFilter(is_no_error)
