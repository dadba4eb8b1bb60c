"""Dependency analysis: the leaves of a state that a function uses.

A bundle stores only these: a personalized model in the client state needs no
copy of the server state, and the bundle of one client must not contain server
state about other clients.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def used_leaves(
  function: Callable[..., Any], *arguments: tf.TensorSpec
) -> list[bool]:
  """Returns for each argument whether the function value depends on it.

  Args:
    function: A pure function of one tensor for each of `arguments`.
    *arguments: Their specs.
  """
  graph_function = tf.function(function, autograph=False)
  concrete = graph_function.get_concrete_function(*arguments)
  pending = [tensor.op for tensor in concrete.outputs]
  reached = set(pending)
  while pending:
    operation = pending.pop()
    sources = [tensor.op for tensor in operation.inputs]
    for source in [*sources, *operation.control_inputs]:
      if source not in reached:
        reached.add(source)
        pending.append(source)
  return [tensor.op in reached for tensor in concrete.inputs[: len(arguments)]]
