"""Segments of vectors, and weighted sums with weights by segment."""

import tensorflow as tf

from tff_algos.core.structures import Structure


def segment_sizes(num_entries: int, num_segments: int) -> tuple[int, ...]:
  """Returns the sizes of consecutive segments, which differ by 1 at most.

  Args:
    num_entries: Of the vector, >= num_segments.
    num_segments: >= 1; the first ones are the larger ones.
  """
  size, num_larger = divmod(num_entries, num_segments)
  return tuple(size + (i < num_larger) for i in range(num_segments))


def flatten_rows(stacked: Structure) -> tf.Tensor:
  """Returns one vector a row, as `trees.flatten` orders it.

  Args:
    stacked: Structure of tensors `[rows, ...]`, static but for the rows.

  Returns:
    `[rows, num_entries]`.
  """
  leaves = tf.nest.flatten(stacked)
  return tf.concat(
    [
      tf.reshape(leaf, [tf.shape(leaf)[0], leaf.shape[1:].num_elements()])
      for leaf in leaves
    ],
    axis=1,
  )


def spread(values: tf.Tensor, sizes: tuple[int, ...]) -> tf.Tensor:
  """Returns one value an entry from one a segment.

  Args:
    values: `[..., num_segments]`.
    sizes: Of `segment_sizes`.

  Returns:
    `[..., num_entries]`.
  """
  segment_of_entry = [i for i, size in enumerate(sizes) for _ in range(size)]
  return tf.gather(values, segment_of_entry, axis=-1)


def mix_rows(
  weights: tf.Tensor, rows: tf.Tensor, sizes: tuple[int, ...]
) -> tf.Tensor:
  """Returns weighted sums of rows, with weights of their own in each segment.

  Args:
    weights: float32 `[num_segments, sums, rows]`.
    rows: float32 `[rows, num_entries]`.
    sizes: Of `segment_sizes`.

  Returns:
    float32 `[sums, num_entries]`.
  """
  parts = tf.split(rows, sizes, axis=1)
  return tf.concat(
    [tf.matmul(weights[i], part) for i, part in enumerate(parts)], axis=1
  )
