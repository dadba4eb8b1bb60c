"""Traced functions with cheap calls, safe for concurrent threads.

`tf.function` matches its arguments with its signature in every call, which
takes half a millisecond for the structures of a phase, ten times as long as the
call itself. `GraphCall` passes the tensors without matching.

To save memory, TensorFlow 2.14 rewrites some sums in a graph to accumulate in a
temporary variable. The variable's name is the same in every call, so concurrent
calls of one graph fail (`AlreadyExistsError ... tmp_var`). The rewriting is
turned off.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_algos.core.structures import Structure


class GraphCall:
  """A traced function.

  Attributes:
    output_types: Outputs as symbolic tensors with dtypes and shapes.
  """

  def __init__(self, traced: Any):
    """Takes a `ConcreteFunction` of structures of tensors, by position."""
    self._graph = traced
    self.output_types = self._graph.structured_outputs
    self._dtypes = [leaf.dtype for leaf in self._graph.outputs]
    self._config = _keep_sums_as_they_are().SerializeToString()

  def bind(self, *arguments: Structure) -> list[tf.Tensor]:
    """Returns flat inputs for `run`, which then holds no Python lock.

    Args:
      *arguments: Tensors or NumPy arrays in the structure of the signature, and
        of its dtypes; no dtype is converted.
    """
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(arguments)]
    return leaves + self._graph.captured_inputs

  def run(self, bound: list[tf.Tensor]) -> Structure:
    """Runs the graph on the result of `bind`."""
    leaves = tf.raw_ops.StatefulPartitionedCall(
      args=bound, Tout=self._dtypes, f=self._graph, config_proto=self._config
    )
    return tf.nest.pack_sequence_as(self.output_types, leaves)

  def __call__(self, *arguments: Structure) -> Structure:
    """Runs the graph on the arguments of `bind`."""
    return self.run(self.bind(*arguments))


def trace(
  function: Callable[..., Structure], signature: Sequence[Structure]
) -> GraphCall:
  """Traces a function of structures of tensors; returns its calls.

  Args:
    function: The function.
    signature: `tf.TensorSpec`s of its arguments.
  """
  return GraphCall(
    tf.function(
      function, autograph=False, input_signature=signature
    ).get_concrete_function()
  )


def _keep_sums_as_they_are() -> tf.compat.v1.ConfigProto:
  """Returns the default graph optimization without that rewriting."""
  # Operations that a GPU does not have run on the CPU, as outside graphs.
  config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
  rewriting = config.graph_options.rewrite_options
  rewriting.memory_optimization = rewriting.NO_MEM_OPT
  return config
