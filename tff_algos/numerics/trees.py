"""Arithmetic on nested structures of tensors, leaf by leaf."""

import math

import tensorflow as tf

from tff_algos.core.structures import Structure


def add(first: Structure, second: Structure) -> Structure:
  """Returns `first + second`."""
  return tf.nest.map_structure(tf.add, first, second)


def subtract(first: Structure, second: Structure) -> Structure:
  """Returns `first - second`."""
  return tf.nest.map_structure(tf.subtract, first, second)


def scale(structure: Structure, factor: tf.Tensor | float) -> Structure:
  """Returns `factor * structure` for a scalar factor."""
  return tf.nest.map_structure(lambda leaf: leaf * factor, structure)


def interpolate(start: Structure, end: Structure, share: float) -> Structure:
  """Returns `(1 - share) * start + share * end`; `end` itself for share 1."""
  if share == 1:
    return end
  return add(scale(start, 1 - share), scale(end, share))


def select(
  condition: tf.Tensor, if_true: Structure, if_false: Structure
) -> Structure:
  """Returns one of two structures whole; a NaN in the other does no harm.

  Args:
    condition: bool `[]`.
    if_true: Structure of tensors.
    if_false: Structure of the same shapes and dtypes.
  """
  return tf.nest.map_structure(
    lambda yes, no: tf.where(condition, yes, no), if_true, if_false
  )


def select_rows(
  condition: tf.Tensor, if_true: Structure, if_false: Structure
) -> Structure:
  """Returns row i of one of two stacked structures, for each i.

  Args:
    condition: bool `[rows]`.
    if_true: Structure of tensors `[rows, ...]`.
    if_false: Structure of the same shapes and dtypes.
  """
  return tf.nest.map_structure(
    lambda yes, no: tf.where(along_rows(condition, yes), yes, no),
    if_true,
    if_false,
  )


def repeat(structure: Structure, count: int) -> Structure:
  """Returns equal rows, leaves `[count, ...]`."""
  return tf.nest.map_structure(
    lambda leaf: tf.repeat(leaf[tf.newaxis], count, axis=0), structure
  )


def scale_rows(structure: Structure, factors: tf.Tensor) -> Structure:
  """Returns `factors[i]` times row i, for each i.

  Args:
    structure: Structure of tensors `[rows, ...]`.
    factors: float32 `[rows]`.
  """
  return tf.nest.map_structure(
    lambda leaf: along_rows(factors, leaf) * leaf, structure
  )


def along_rows(vector: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
  """Returns `[rows]` as `[rows, 1, ...]`, of the rank of `[rows, ...]`."""
  return tf.reshape(vector, [-1] + [1] * (len(leaf.shape) - 1))


def squared_norm(structure: Structure) -> tf.Tensor:
  """Returns the sum of the squares of all entries, float32 `[]`."""
  # The gradient of a reduce_sum would first broadcast a scalar.
  halves = [tf.nn.l2_loss(leaf) for leaf in tf.nest.flatten(structure)]
  return 2.0 * tf.add_n(halves or [tf.zeros([])])


def inner_product(first: Structure, second: Structure) -> tf.Tensor:
  """Returns the sum of the products of all entries, float32 `[]`."""
  products = tf.nest.map_structure(
    lambda one, other: tf.reduce_sum(one * other), first, second
  )
  return tf.add_n(tf.nest.flatten(products) or [tf.zeros([])])


def zeros(spec: Structure) -> Structure:
  """Returns zeros of the types of a structure of `tf.TensorSpec`."""
  return tf.nest.map_structure(
    lambda leaf: tf.zeros(leaf.shape, leaf.dtype), spec
  )


def zeros_like(structure: Structure) -> Structure:
  """Returns zeros of the same shapes and dtypes."""
  return tf.nest.map_structure(tf.zeros_like, structure)


def squared_row_norms(structure: Structure, num_rows: tf.Tensor) -> tf.Tensor:
  """Returns the squared norm of each row of a stack, float32 `[num_rows]`.

  Args:
    structure: Structure of float32 tensors `[num_rows, ...]`.
    num_rows: int32 `[]`.
  """
  squared = [
    tf.reduce_sum(tf.square(leaf), axis=[*range(1, len(leaf.shape))])
    for leaf in tf.nest.flatten(structure)
  ]
  return tf.add_n(squared or [tf.zeros([num_rows])])


def finite_rows(structure: Structure, num_rows: tf.Tensor) -> tf.Tensor:
  """Returns which rows of a stack hold no NaN and no infinity.

  A row counts as infinite, too, if its sum overflows.

  Args:
    structure: Structure of tensors `[num_rows, ...]`; only floating ones count.
    num_rows: int32 `[]`.

  Returns:
    bool `[num_rows]`.
  """
  # One pass over the numbers; NaN and infinity survive every sum.
  sums = [tf.zeros([num_rows])]
  for leaf in tf.nest.flatten(structure):
    if leaf.dtype.is_floating:
      sums.append(tf.reduce_sum(leaf, axis=[*range(1, len(leaf.shape))]))
  return tf.reduce_all(tf.math.is_finite(tf.stack(sums)), axis=0)


def all_finite(structure: Structure) -> tf.Tensor:
  """Returns whether no entry is NaN or infinite, bool `[]`.

  Entries whose sum overflows count as infinite, too.

  Args:
    structure: Structure of tensors; only floating ones count.
  """
  sums = [
    tf.reduce_sum(leaf)
    for leaf in tf.nest.flatten(structure)
    if leaf.dtype.is_floating
  ]
  return tf.reduce_all(tf.math.is_finite(tf.stack([tf.constant(0.0), *sums])))


def mix(weights: tf.Tensor, stacked: Structure) -> Structure:
  """Returns the weighted sums over axis 0.

  Args:
    weights: `[rows]`, or `[sums, rows]` for several sums at once.
    stacked: Structure of tensors `[rows, ...]`.

  Returns:
    Structure of tensors `[...]`, or `[sums, ...]`.
  """
  is_one = len(weights.shape) == 1
  factors = tf.expand_dims(weights, 0) if is_one else weights

  def mix_leaf(leaf: tf.Tensor) -> tf.Tensor:
    # `tf.tensordot` would ask for every size, in some thirty operations a leaf.
    shape = tf.TensorShape(leaf.shape[1:])
    rows = tf.reshape(leaf, [-1, shape.num_elements()])
    sums = tf.matmul(factors, rows)
    return tf.reshape(sums, shape if is_one else [-1, *shape])

  return tf.nest.map_structure(mix_leaf, stacked)


def take(stacked: Structure, index: tf.Tensor | int) -> Structure:
  """Returns row `index` of every leaf `[rows, ...]`; several for a vector.

  Args:
    stacked: Structure of tensors `[rows, ...]`.
    index: int32 `[]`, or `[n]`.

  Returns:
    Structure of tensors `[...]`, or `[n, ...]`.
  """
  return tf.nest.map_structure(lambda leaf: tf.gather(leaf, index), stacked)


def num_entries(structure: Structure) -> int:
  """Returns the number of scalars; all shapes must be static."""
  return sum(
    int(tf.TensorShape(leaf.shape).num_elements())
    for leaf in tf.nest.flatten(structure)
  )


def num_bytes(spec: Structure) -> int:
  """Returns the bytes of `tf.TensorSpec`s; an unknown length counts as 1."""
  return sum(
    math.prod(1 if size is None else size for size in leaf.shape)
    * leaf.dtype.size
    for leaf in tf.nest.flatten(spec)
  )


def flatten(structure: Structure) -> tf.Tensor:
  """Returns all entries, leaf by leaf, as one vector `[num_entries]`."""
  return tf.concat(
    [tf.reshape(leaf, [-1]) for leaf in tf.nest.flatten(structure)], axis=0
  )


def unflatten(vector: tf.Tensor, like: Structure) -> Structure:
  """Returns the structure from which `flatten` made a vector.

  Args:
    vector: `[num_entries]`.
    like: Structure of the shapes, which must be static.
  """
  leaves = tf.nest.flatten(like)
  parts = tf.split(vector, [num_entries(leaf) for leaf in leaves])
  return tf.nest.pack_sequence_as(
    like,
    [
      tf.reshape(part, leaf.shape)
      for part, leaf in zip(parts, leaves, strict=True)
    ],
  )
