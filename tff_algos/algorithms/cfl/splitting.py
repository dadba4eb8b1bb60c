"""Splitting criterion of CFL, and bipartition of a cluster of clients.

Sattler, Müller and Samek, "Clustered Federated Learning: Model-Agnostic
Distributed Multi-Task Optimization under Privacy Constraints" (2020),
arXiv:1910.01991, Algorithm 1. If one model is optimal for all clients, their
updates vanish together; otherwise single updates stay large while their mean
vanishes, and differ in direction between clients of different distributions.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import checks
from tff_algos.numerics import gram as gram_lib


@dataclasses.dataclass(frozen=True)
class SplittingConfig:
  """Criteria of a split.

  Updates are as large as the clients' learning rate lets them be, and the two
  bounds stay where it falls by a schedule.

  Attributes:
    mean_norm_below: epsilon_1: a cluster splits only if the norm of its mean
      update is below, > 0.
    largest_norm_above: epsilon_2: and only if the largest norm of an update is
      above, >= 0.
    first_round: First round in which a cluster may split, >= 1.
  """

  mean_norm_below: float = 0.1
  largest_norm_above: float = 0.5
  first_round: int = 21

  def __post_init__(self):
    checks.check_positive('mean_norm_below', self.mean_norm_below)
    checks.check_at_least('largest_norm_above', self.largest_norm_above, 0)
    checks.check_int('first_round', self.first_round, minimum=1)


class Clusters(NamedTuple):
  """Clusters after a round's splits.

  Attributes:
    assignment: Cluster of each client of the cohort, int32 `[cohort]`.
    num_active: Number of clusters in use, int32 `[]`; the others are empty.
    parents: Old cluster of which each cluster was a part, int32
      `[num_clusters]`; itself if it is not new.
    smallest_mean_norm: Minimum over the old clusters, float64 `[]`; infinite if
      all weights are 0.
    largest_norm: Largest norm of all updates, float64 `[]`.
  """

  assignment: tf.Tensor
  num_active: tf.Tensor
  parents: tf.Tensor
  smallest_mean_norm: tf.Tensor
  largest_norm: tf.Tensor


def split(
  gram: tf.Tensor,
  before: tf.Tensor,
  counts: tf.Tensor,
  num_active: tf.Tensor,
  num_clusters: int,
  is_open: tf.Tensor,
  config: SplittingConfig,
) -> Clusters:
  """Splits each cluster that meets the criteria, once.

  The half with the first client of the cohort keeps the number; the other gets
  the next free one. A cluster of two clients never splits, and none does when
  all numbers are in use.

  Args:
    gram: Inner products of the clients' updates, float64 `[cohort, cohort]`.
    before: Cluster of each client, int32 `[cohort]`.
    counts: Weight of each client in its cluster's mean, >= 0, float64
      `[cohort]`; clients of weight 0 keep their cluster and are ignored.
    num_active: Number of clusters so far, int32 `[]`.
    num_clusters: Maximal number of clusters.
    is_open: Whether clusters may split in this round, bool `[]`.
    config: Criteria of a split.
  """
  distances = 1 - gram_lib.cosines(gram)
  norms = tf.sqrt(tf.linalg.diag_part(gram))

  def visit(cluster_id, clusters):
    is_member = tf.equal(before, cluster_id) & (counts > 0)
    members = tf.cast(is_member, tf.float64)
    shares = tf.math.divide_no_nan(
      members * counts, tf.reduce_sum(members * counts)
    )
    # Rounding may leave a sum that vanishes a little below 0.
    squared = tf.tensordot(shares, tf.linalg.matvec(gram, shares), axes=1)
    mean_norm = tf.sqrt(tf.maximum(squared, 0))
    largest_norm = tf.reduce_max(members * norms)
    is_due = (
      is_open
      & (mean_norm < config.mean_norm_below)
      & (largest_norm > config.largest_norm_above)
      & (tf.reduce_sum(members) > 2)
      & (clusters.num_active < num_clusters)
    )
    leaves = bipartition(distances, is_member & is_due)
    is_new = is_due & tf.equal(tf.range(num_clusters), clusters.num_active)
    seen = tf.where(tf.reduce_any(is_member), mean_norm, float('inf'))
    return cluster_id + 1, Clusters(
      tf.where(leaves, clusters.num_active, clusters.assignment),
      clusters.num_active + tf.cast(is_due, tf.int32),
      tf.where(is_new, cluster_id, clusters.parents),
      tf.minimum(clusters.smallest_mean_norm, seen),
      tf.maximum(clusters.largest_norm, largest_norm),
    )

  start = Clusters(
    before,
    num_active,
    tf.range(num_clusters),
    tf.constant(float('inf'), tf.float64),
    tf.constant(0.0, tf.float64),
  )
  _, clusters = tf.while_loop(
    lambda cluster_id, _: cluster_id < num_active,
    visit,
    (tf.constant(0), start),
    parallel_iterations=1,
  )
  return clusters


def bipartition(distances: tf.Tensor, is_member: tf.Tensor) -> tf.Tensor:
  """Returns the second of two clusters by complete linkage.

  Every member starts as a cluster; the two nearest clusters are merged until
  two are left. Their distance is the largest of two of their members, as in the
  authors' code; the criterion printed in the paper is optimized by single
  linkage, with the smallest.

  Args:
    distances: Between rows, symmetric, finite, float64 `[rows, rows]`.
    is_member: bool `[rows]`; the others take no part.

  Returns:
    bool `[rows]`: True for the members of the cluster without the first member;
    all False for fewer than two members. Of pairs that are equally near, the
    first by row and then by column is merged.
  """
  num_rows = tf.shape(distances)[0]

  def merge(is_root, distances, root_of):
    is_pair = is_root[:, tf.newaxis] & is_root
    is_pair &= tf.range(num_rows)[:, tf.newaxis] < tf.range(num_rows)
    nearest = tf.argmin(
      tf.reshape(tf.where(is_pair, distances, float('inf')), [-1]),
      output_type=tf.int32,
    )
    first, second = nearest // num_rows, tf.math.floormod(nearest, num_rows)
    merged = tf.maximum(distances[first], distances[second])
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
