"""Classify and Regress of TensorFlow Serving: requests of `tf.train.Example`s.

https://www.tensorflow.org/tfx/serving/api_rest#classify_and_regress_api
"""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import input_pb2

from tff_algos.core import errors
from tff_algos.serving import (
  batching,
  lanes,
  served_model,
  server_config,
  tensors,
)

CLASSIFY = 'classify'
REGRESS = 'regress'

_MAX_INT64 = 2**63


def ask(
  model: served_model.ServedModel,
  method: str,
  signature_name: str,
  examples: Sequence[tf.train.Example],
  config: server_config.ServerConfig,
  respond: Callable[[Mapping[str, np.ndarray]], bytes],
) -> batching.Question:
  """Returns a question for the outputs of a signature for `tf.train.Example`s.

  Args:
    model: The model.
    method: `CLASSIFY` or `REGRESS`.
    signature_name: Name of the signature.
    examples: At least one.
    config: Limits.
    respond: Outputs -> content of the answer.

  Raises:
    RequestError: If the model has no such signature, or there are too many.
  """
  signature = model.signature(signature_name)
  found = signature.method_name
  if found != f'tensorflow/serving/{method}':
    raise errors.RequestError(
      f'signature {signature_name!r} of model {model.name!r} is for {found}, '
      f'not for tensorflow/serving/{method}'
    )
  serialized = [example.SerializeToString() for example in examples]
  inputs = {'inputs': np.array(serialized, object)}
  tensors.check_size(inputs, signature, config)
  return batching.Question(model, signature_name, inputs, respond)


def from_input(
  content: input_pb2.Input, config: server_config.ServerConfig
) -> list[tf.train.Example]:
  """Returns the examples of a gRPC request.

  Raises:
    RequestError: If there are none, or more than the limits.
  """
  with_context = content.HasField('example_list_with_context')
  listed = (
    content.example_list_with_context if with_context else content.example_list
  )
  if not listed.examples:
    raise errors.RequestError('the request must have at least one example')
  tensors.check_num_rows(len(listed.examples), config.max_rows)
  if with_context:
    return _joined(listed.context, listed.examples)
  return list(listed.examples)


def from_json(
  request: Mapping[str, Any],
  numbers: Collection[str],
  config: server_config.ServerConfig,
) -> list[tf.train.Example]:
  """Returns the examples of a REST request.

  Args:
    request: JSON object with `examples`, a list of objects feature -> value or
      list of values, and optionally `context`, features of all examples.
    numbers: Features of float32, where whole numbers are allowed, too.
    config: Limits.

  Raises:
    RequestError: If the value is malformed, or beyond the limits.
  """
  listed, shared = request.get('examples'), request.get('context', {})
  if not isinstance(listed, list) or not listed:
    raise errors.RequestError("'examples' must be a list that is not empty")
  tensors.check_num_rows(len(listed), config.max_rows)
  context = _example("'context'", shared, numbers)
  examples = []
  for i, one in enumerate(listed):
    where = f"element {i} of 'examples'"
    example = _example(where, one, numbers)
    twice = sorted({*example.features.feature} & {*context.features.feature})
    if twice:
      raise errors.RequestError(
        f"{where} and 'context' both have the feature {twice[0][:200]!r}"
      )
    examples.append(example)
  return _joined(context, examples)


def classifications(
  outputs: Mapping[str, np.ndarray],
) -> list[list[tuple[str, float]]]:
  """Returns the classes of each example with their scores.

  Raises:
    RequestError: If the outputs are not those of a Classify signature.
  """
  scores, classes = outputs.get('scores'), outputs.get('classes')
  if scores is None or classes is None or scores.shape != classes.shape:
    raise errors.RequestError(
      f'a classifier must answer with scores and classes of one shape, got '
      f'{", ".join(outputs)}'
    )
  return [
    [
      (label.decode(errors='replace'), score)
      for label, score in zip(labels, row, strict=True)
    ]
    for labels, row in zip(classes.tolist(), scores.tolist(), strict=True)
  ]


def regressions(outputs: Mapping[str, np.ndarray]) -> list[float]:
  """Returns the number of each example.

  Raises:
    RequestError: If the outputs are not those of a Regress signature.
  """
  if 'outputs' not in outputs:
    raise errors.RequestError(
      f'a regression must answer with outputs, got {", ".join(outputs)}'
    )
  return outputs['outputs'].reshape([-1]).tolist()


def _joined(
  context: tf.train.Example, examples: Sequence[tf.train.Example]
) -> list[tf.train.Example]:
  """Returns the examples, of each of which the context is a part.

  Raises:
    RequestError: (413) If the contexts are longer than a small request, and
      than the request, by whose size its lane was chosen.
  """
  size = len(examples) * context.ByteSize()
  sent = context.ByteSize() + sum(one.ByteSize() for one in examples)
  limit = max(lanes.SMALL_BYTES, sent)
  if size > limit:
    raise errors.RequestError(
      f'the context of {len(examples)} examples has {size} bytes in all, and '
      f'at most {limit} are allowed; send fewer',
      status=413,
    )
  joined = []
  for example in examples:
    joined.append(tf.train.Example())
    joined[-1].CopyFrom(context)
    joined[-1].MergeFrom(example)
  return joined


def _example(
  where: str, features: Any, numbers: Collection[str]
) -> tf.train.Example:
  if not isinstance(features, dict):
    raise errors.RequestError(
      f'{where} must be an object of features and their values'
    )
  example = tf.train.Example()
  for name, value in features.items():
    values = value if isinstance(value, list) else [value]
    what = f'feature {name[:200]!r} of {where}'
    _fill(
      example.features.feature[name], what, values, is_float=name in numbers
    )
  return example


def _fill(
  feature: tf.train.Feature, what: str, values: list[Any], *, is_float: bool
) -> None:
  """Sets the values of a feature: texts, whole numbers, or numbers."""
  kinds = set(map(type, values))
  if kinds <= {str, dict}:
    feature.bytes_list.value.extend(
      tensors.bytes_of(what, value) for value in values
    )
  elif kinds == {int} and not is_float:
    if not all(-_MAX_INT64 <= value < _MAX_INT64 for value in values):
      raise errors.RequestError(f'{what} has a number that is no int64')
    feature.int64_list.value.extend(values)
  elif kinds <= {int, float}:
    try:
      feature.float_list.value.extend(map(float, values))
    except OverflowError:
      raise errors.RequestError(
        f'{what} has a number that is no float'
      ) from None
  else:
    raise errors.RequestError(
      f'{what} must be a number, a string, {{"b64": ...}} or a list of one of '
      'them'
    )
