"""Graph functions shared by all bundles: checks, grouping, output names.

Everything here is traced into a SavedModel, so it must work with TensorFlow
alone: no Python at prediction time.
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tff_algos.core import model as model_lib

# Assertions, to be control dependencies of all operations that rely on them: a
# gather with an invalid index would otherwise fail first, with its own text.
Check = tf.Operation | tf.Tensor

# Longer texts are truncated in error texts.
_MAX_SHOWN_BYTES = 100


def require_rows(
  ok: tf.Tensor, message: Callable[[tf.Tensor], tf.Tensor]
) -> Check:
  """Fails with InvalidArgument at the first row that is not `ok`.

  Args:
    ok: `[batch]` bool.
    message: index of the bad row, int64 `[]` -> the error's text, string `[]`.
  """

  def fail():
    row = tf.argmin(tf.cast(ok, tf.int32))
    return tf.raw_ops.Assert(condition=False, data=[message(row)])

  return tf.cond(tf.reduce_all(ok), tf.no_op, fail)


def require_same_rows(name: str, values: tf.Tensor, x: tf.Tensor) -> Check:
  """Fails with InvalidArgument unless `values` has one row for each of `x`."""
  num_rows, num_examples = tf.shape(values)[0], tf.shape(x)[0]
  return require_rows(
    tf.equal(num_rows, num_examples)[tf.newaxis],
    lambda _: tf.strings.join(
      [
        f'{name} must have one row for each example: it has ',
        tf.strings.as_string(num_rows),
        ', and the number of examples is ',
        tf.strings.as_string(num_examples),
      ]
    ),
  )


def require_index(name: str, values: tf.Tensor, size: int) -> Check:
  """Fails with InvalidArgument unless all `values` are in [0, size).

  Args:
    name: Name of the values, for the error text.
    values: Integers `[batch]`, or `[batch, places]`.
    size: Exclusive upper bound.
  """
  is_index = (values >= 0) & (values < size)
  return require_values(
    is_index, values, f'{name} must be from 0 to {size - 1}'
  )


def require_values(
  is_ok: tf.Tensor, values: tf.Tensor, rule: str | Sequence[str]
) -> Check:
  """Fails with InvalidArgument at the first value that is not ok.

  Args:
    is_ok: `[batch, ...]` bool.
    values: Numbers or strings of the same shape, for the error text.
    rule: Begin of the error text, such as `'x must be finite'`; or that of
      each index of the last axis.
  """

  def message(row: tf.Tensor) -> tf.Tensor:
    place = tf.argmin(tf.cast(tf.reshape(is_ok[row], [-1]), tf.int32))
    value = tf.reshape(values[row], [-1])[place]
    what = rule
    if not isinstance(rule, str):
      what = tf.gather(rule, tf.math.floormod(place, len(rule)))
    return tf.strings.join(
      [what, ', got ', _spell(value), ' in row ', tf.strings.as_string(row)]
    )

  places = list(range(1, is_ok.shape.rank))
  return require_rows(tf.reduce_all(is_ok, places), message)


def printable(text: tf.Tensor) -> tf.Tensor:
  """Returns the begin of a text as UTF-8, for an error text."""
  start = tf.strings.substr(text, 0, _MAX_SHOWN_BYTES)
  return tf.strings.unicode_transcode(start, 'UTF-8', 'UTF-8')


def _spell(value: tf.Tensor) -> tf.Tensor:
  if value.dtype == tf.string:
    return printable(value)
  return tf.strings.as_string(value, shortest=value.dtype.is_floating)


def apply_by_group(
  model: model_lib.Model,
  weights_of: Callable[[tf.Tensor], model_lib.Weights],
  group_ids: tf.Tensor,
  x: tf.Tensor,
) -> tf.Tensor:
  """Returns the model's outputs, each row with the weights of its group.

  The model runs once for each distinct group in the batch, on that group's
  rows. A batch of one group costs one pass, and no more than one set of
  weights is ever gathered, however large the batch.

  Args:
    model: Model to evaluate.
    weights_of: group id int32 `[]` -> weights.
    group_ids: `[batch]` int32.
    x: `[batch, *input_shape]` of the model's `input_dtype`.

  Returns:
    `[batch, *label_shape, num_outputs]` float32.
  """
  groups, positions = tf.unique(group_ids)

  def apply_to_group(i, outputs):
    rows = tf.where(tf.equal(positions, i))
    group_outputs = model.apply(weights_of(groups[i]), tf.gather_nd(x, rows))
    return i + 1, tf.tensor_scatter_nd_update(outputs, rows, group_outputs)

  num_rows = tf.shape(x)[0]
  shape = [*model.label_shape, model.num_outputs]
  _, outputs = tf.while_loop(
    lambda i, _: i < tf.size(groups),
    apply_to_group,
    (0, tf.zeros([num_rows, *shape])),
    shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, *shape])),
    parallel_iterations=1,  # TensorFlow would gather ten models at a time.
  )
  return outputs


def name_outputs(
  model: model_lib.Model, outputs: tf.Tensor
) -> Mapping[str, tf.Tensor]:
  """Returns a bundle's named outputs from a model's outputs.

  Classification: `logits` and `probabilities` `[batch, *label_shape,
  num_classes]` float32, `class_id` `[batch, *label_shape]` int32. Regression:
  `prediction` `[batch]` float32.
  """
  if model.task == model_lib.CLASSIFICATION:
    return {'logits': outputs, **name_probabilities(tf.nn.softmax(outputs))}
  return {'prediction': outputs[:, 0]}


def name_probabilities(probabilities: tf.Tensor) -> Mapping[str, tf.Tensor]:
  """Returns `probabilities` and the most probable `class_id` by name."""
  class_id = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
  return {'probabilities': probabilities, 'class_id': class_id}


def features_spec(model: model_lib.Model) -> tf.TensorSpec:
  """Returns the spec of the input `x`, `[batch, *input_shape]`."""
  return tf.TensorSpec([None, *model.input_shape], model.input_dtype, name='x')
