"""Checks of models written elsewhere, on the graph of one traced call."""

import dataclasses
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import unit_dropout

# TensorFlow calls them stateful for what they may call or report.
_CONTROL = {
  *('Assert', 'Case', 'If', 'Placeholder', 'PlaceholderWithDefault', 'While'),
  'StatefulPartitionedCall',
}
_LOOPED = ('Conv', 'While')
# Batches of this size are traced; a model must not depend on it.
_BATCH = 2


def operation_types(graph: tf.Graph) -> set[str]:
  """Returns the types of all operations, those of called functions included."""
  spelled = graph.as_graph_def()
  functions = [function.node_def for function in spelled.library.function]
  return {node.op for nodes in (spelled.node, *functions) for node in nodes}


def checked(model: model_lib.Model) -> model_lib.Model:
  """Returns a model with its label shape and `vectorizes`, from its graph.

  `apply` is traced once, in a training step; the graph must be that of a
  function of weights and examples.

  Raises:
    ConfigError: If the model has no weights, has state, draws random numbers
      without a seed, or ends with a softmax; or if its outputs are not one
      tensor of floats `[batch, *label_shape, num_outputs]`, `[batch, 1]` of a
      regression.
  """
  if not model.weights_spec():
    raise errors.ConfigError(
      f'model {model.name!r} has no weights to train: all are frozen, or no '
      'layer has any. Leave its last layer trainable, or add one'
    )

  def step(weights, x, seed, rows):
    with unit_dropout.in_step(0.0, unit_dropout.Draws(seed, seed[0], rows)):
      return model.apply(weights, x)

  traced = tf.function(step, autograph=False).get_concrete_function(
    model.weights_spec(),
    tf.TensorSpec([_BATCH, *model.input_shape], model.input_dtype),
    tf.TensorSpec([2], tf.int32),
    tf.TensorSpec([_BATCH], tf.int32),
  )
  outputs = traced.structured_outputs
  is_one = isinstance(outputs, tf.Tensor) and outputs.dtype.is_floating
  shape = tuple(outputs.shape) if is_one else ()
  label_shape = shape[1:-1]
  if shape != (_BATCH, *label_shape, model.num_outputs) or None in shape:
    raise errors.ConfigError(
      f'model {model.name!r} must return floats [batch, ..., '
      f'{model.num_outputs}], the number of classes or 1 for regression; for a '
      f'batch of {_BATCH} it returns {outputs}'
    )
  if label_shape and model.task == model_lib.REGRESSION:
    raise errors.ConfigError(
      f'model {model.name!r} has one output, and is a regression: it must '
      f'return [batch, 1], for a batch of {_BATCH} it returns {outputs}'
    )
  _check_pure(model.name, traced.graph)
  return dataclasses.replace(
    model, label_shape=label_shape, vectorizes=_vectorizes(traced.graph)
  )


def _check_pure(name: str, graph: tf.Graph) -> None:
  """Raises ConfigError if calls have state, or return probabilities."""
  stateful = sorted(filter(_is_stateful, operation_types(graph)))
  if any(tensor.dtype == tf.resource for tensor, _ in graph.captures):
    stateful.append('a variable or table of its own')
  if stateful:
    raise errors.ConfigError(
      f'model {name!r} has state or draws random numbers of its own '
      f'({", ".join(stateful)}): calls would differ by runtime and order. '
      'Leave these layers out; tf.keras.layers.Dropout is drawn by the seed of '
      'the run'
    )
  if _maker(graph.outputs[0]).type == 'Softmax':
    raise errors.ConfigError(
      f'model {name!r} ends with a softmax, but must return logits: its loss '
      'applies the softmax itself. Remove the activation of its last layer'
    )


def _maker(tensor: tf.Tensor) -> tf.Operation:
  """Returns the operation that computes a tensor, also in called functions."""
  op = tensor.op
  if op.type in ('Identity', 'Cast', 'Reshape'):
    return _maker(op.inputs[0])
  if op.type.endswith('PartitionedCall'):
    called = _called(op.graph, op.get_attr('f').name)
    if called is not None:
      return _maker(called.outputs[tensor.value_index])
  return op


def _called(graph: tf.Graph, name: str) -> Any:
  """Returns the graph of a called function; None if Python has not made it."""
  return getattr(graph._get_function(name), 'graph', None)


def _vectorizes(graph: tf.Graph) -> bool:
  """Returns whether stacked weights become batched matrix products."""
  has_loop = any(
    word in kind for kind in operation_types(graph) for word in _LOOPED
  )
  # Stacked over clients and clusters, it would have more than the five axes
  # that TensorFlow's softmax takes on a CPU.
  names = [one.signature.name for one in graph.as_graph_def().library.function]
  has_wide_softmax = any(
    op.type == 'Softmax' and (op.outputs[0].shape.rank or 0) > 3
    for one in (graph, *filter(None, (_called(graph, name) for name in names)))
    for op in one.get_operations()
  )
  return not (has_loop or has_wide_softmax)


def _is_stateful(kind: str) -> bool:
  definition = op_def_registry.get(kind)
  return (
    kind not in _CONTROL and definition is not None and definition.is_stateful
  )
