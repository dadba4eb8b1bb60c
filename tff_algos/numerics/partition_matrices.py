"""Partition matrices of clusterings, and transition matrices between them.

The matrices P, J and Q of Tang, Guo and Guo (2021), "Personalized Federated
Learning with Clustered Generalization", section 4.2. Points that do not count
(`weights` 0) are in no cluster.
"""

import tensorflow as tf


def membership_matrix(
  assignment: tf.Tensor, weights: tf.Tensor, num_clusters: int
) -> tf.Tensor:
  """Returns J times the weights: each cluster's row holds those of its points.

  Args:
    assignment: int32 `[points]`.
    weights: Of the points, float `[points]`, >= 0; all 1 for J itself.
    num_clusters: >= 1.

  Returns:
    `[num_clusters, points]`, of the weights' type.
  """
  return weights * tf.one_hot(
    assignment, num_clusters, axis=0, dtype=weights.dtype
  )


def averaging_matrix(
  assignment: tf.Tensor, weights: tf.Tensor, num_clusters: int
) -> tf.Tensor:
  """Returns P: column k takes the weighted mean of cluster k.

  Args:
    assignment: int32 `[points]`.
    weights: Of the points, float `[points]`, >= 0; equal ones for P as printed.
    num_clusters: >= 1.

  Returns:
    `[points, num_clusters]`, of the weights' type. Columns sum to 1; that of an
    empty cluster is 0.
  """
  members = membership_matrix(assignment, weights, num_clusters)
  totals = tf.reduce_sum(members, axis=1, keepdims=True)
  return tf.transpose(tf.math.divide_no_nan(members, totals))


def transition_matrix(
  before: tf.Tensor, after: tf.Tensor, weights: tf.Tensor, num_clusters: int
) -> tf.Tensor:
  """Returns J of before times P of after: where each cluster's points were.

  With it in the place of Q, the paper's Eq. 11 holds for every pair of
  partitions. (A Q with P_after = P_before Q exists only if the partition stays
  the same up to the names of its clusters.)

  Args:
    before: int32 `[points]`.
    after: int32 `[points]`.
    weights: 1 for a point that counts, else 0; float `[points]`.
    num_clusters: >= 1.

  Returns:
    `[num_clusters, num_clusters]`, of the weights' type; entry (j, k) is the
    share of cluster k's points after that were in cluster j before. Columns sum
    to 1; the column of a cluster that is empty after is that of the identity.
  """
  joined, members = (
    membership_matrix(assignment, weights, num_clusters)
    for assignment in (before, after)
  )
  sizes = tf.reduce_sum(members, axis=1)
  # Divided last, so that the entry of an unchanged cluster is exactly 1.
  transition = tf.math.divide_no_nan(
    tf.matmul(joined, members, transpose_b=True), sizes
  )
  is_empty = tf.equal(sizes, 0)
  identity = tf.eye(num_clusters, dtype=weights.dtype)
  return tf.where(is_empty, identity, transition)
