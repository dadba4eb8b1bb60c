"""The leaves of a state that a function uses, and variables of them.

A bundle stores only these: a personalized model in the client state needs no
copy of the server state, and the bundle of one client must not contain server
state about other clients.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import validation


def used_leaves(function: Callable[..., Any], *arguments: Any) -> list[Any]:
  """Returns for each leaf of the arguments whether the value depends on it.

  Args:
    function: A pure function of `arguments`, with tensors as their leaves.
    *arguments: Structures of arrays or specs.
  """
  specs = [
    tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in tf.nest.flatten(arguments)
  ]
  graph_function = tf.function(
    lambda *leaves: function(*tf.nest.pack_sequence_as(arguments, leaves)),
    autograph=False,
  )
  concrete = graph_function.get_concrete_function(*specs)
  pending = [tensor.op for tensor in concrete.outputs]
  reached = set(pending)
  while pending:
    operation = pending.pop()
    sources = [tensor.op for tensor in operation.inputs]
    for source in [*sources, *operation.control_inputs]:
      if source not in reached:
        reached.add(source)
        pending.append(source)
  flags = [tensor.op in reached for tensor in concrete.inputs[: len(specs)]]
  return [*tf.nest.pack_sequence_as(arguments, flags)]


def store(
  state: algorithm_lib.Structure,
  is_used: algorithm_lib.Structure,
  held: Sequence[tuple[np.ndarray, tf.Variable]] = (),
) -> dict[int, tf.Variable]:
  """Returns position -> variable of the leaves of a server state that are used.

  Args:
    state: The state, of arrays.
    is_used: What `used_leaves` returns for it.
    held: Arrays with variables already, which are reused.

  Raises:
    ExportError: If an array to be stored is not finite.
  """
  reused = {id(array): variable for array, variable in held}
  variables = {}
  leaves = tf.nest.flatten(state)
  for i in np.flatnonzero(tf.nest.flatten(is_used)).tolist():
    variables[i] = reused.get(id(leaves[i]))
    if variables[i] is None:
      validation.check_finite('an array of the server state', leaves[i])
      variables[i] = bundle_lib.variable(leaves[i])
  return variables


def complete(
  state: algorithm_lib.Structure,
  leaves: Mapping[int, tf.Tensor | tf.Variable],
) -> algorithm_lib.Structure:
  """Returns a state of leaves by their position, with zeros for all others."""
  return tf.nest.pack_sequence_as(
    state,
    [
      tf.convert_to_tensor(leaves[i])
      if i in leaves
      else tf.zeros(leaf.shape, leaf.dtype)
      for i, leaf in enumerate(tf.nest.flatten(state))
    ],
  )
