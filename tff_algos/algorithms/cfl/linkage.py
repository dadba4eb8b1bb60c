"""Agglomerative clustering down to two clusters, as tensor operations."""

import tensorflow as tf

LINKAGES = ('complete', 'single')


def bipartition(
  distances: tf.Tensor, is_member: tf.Tensor, linkage: str
) -> tf.Tensor:
  """Returns the second of two clusters of an agglomerative clustering.

  Every member starts as a cluster; the two nearest clusters are merged until
  two are left. Single linkage maximizes, over all bipartitions, the smallest
  distance between two members of different clusters.

  Args:
    distances: Between rows, symmetric, finite, float64 `[rows, rows]`.
    is_member: bool `[rows]`; the others take no part.
    linkage: Distance of two clusters: the largest (`'complete'`) or the
      smallest (`'single'`) distance of two of their members.

  Returns:
    bool `[rows]`: True for the members of the cluster without the first member;
    all False for fewer than two members. Of pairs that are equally near, the
    first by row and then by column is merged.
  """
  num_rows = tf.shape(distances)[0]
  farther = {'complete': tf.maximum, 'single': tf.minimum}[linkage]

  def merge(is_root, distances, root_of):
    is_pair = is_root[:, tf.newaxis] & is_root
    is_pair &= tf.range(num_rows)[:, tf.newaxis] < tf.range(num_rows)
    nearest = tf.argmin(
      tf.reshape(tf.where(is_pair, distances, float('inf')), [-1]),
      output_type=tf.int32,
    )
    first, second = nearest // num_rows, tf.math.floormod(nearest, num_rows)
    merged = farther(distances[first], distances[second])
    at_first = tf.equal(tf.range(num_rows), first)
    for is_replaced, values in (
      (at_first[:, tf.newaxis], merged),
      (at_first, merged[:, tf.newaxis]),
    ):
      distances = tf.where(is_replaced, values, distances)
    return (
      is_root & tf.not_equal(tf.range(num_rows), second),
      distances,
      tf.where(tf.equal(root_of, second), first, root_of),
    )

  # A cluster is named by its first row.
  _, _, root_of = tf.while_loop(
    lambda is_root, *_: tf.math.count_nonzero(is_root) > 2,
    merge,
    (is_member, distances, tf.range(num_rows)),
    shape_invariants=(
      tf.TensorShape([None]),
      tf.TensorShape([None, None]),
      tf.TensorShape([None]),
    ),
    parallel_iterations=1,
  )
  first_member = tf.argmax(tf.cast(is_member, tf.int32), output_type=tf.int32)
  leaves = is_member & tf.not_equal(root_of, first_member)
  return tf.ensure_shape(leaves, is_member.shape)
