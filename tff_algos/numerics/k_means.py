"""k-means on inner products alone, in the graph.

Lloyd (1982), "Least squares quantization in PCM", from the seeds of Arthur and
Vassilvitskii (2007), "k-means++: the advantages of careful seeding". A centre
is a weighted sum of points, so all that is needed of the points is their Gram
matrix (`numerics.gram`): an iteration takes O(n^2 k) for n points, however long
they are, and nothing larger than the matrix is held.

The centre of an empty cluster is moved to the point that lies farthest from its
centre, those of several empty clusters to the next farthest. If all points lie
on their centres, there are fewer distinct points than clusters, and the cluster
stays empty. Ties go to the lowest cluster id.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.numerics import gram as gram_lib
from tff_algos.numerics import index_random, partition_matrices

MAX_ITERATIONS = 300


class Clustering(NamedTuple):
  """Result of k-means.

  Attributes:
    assignment: Cluster of each point, int32 `[points]`; undefined for points
      that are not real.
    inertia: Sum of the squared distances to the means, float64 `[]`.
    num_iterations: Assignment steps, int32 `[]`; the last one changed nothing,
      unless `max_iterations` was reached.
  """

  assignment: tf.Tensor
  inertia: tf.Tensor
  num_iterations: tf.Tensor


def k_means(
  gram: tf.Tensor,
  is_real: tf.Tensor,
  num_clusters: int,
  seed: tf.Tensor,
  num_restarts: int,
  max_iterations: int = MAX_ITERATIONS,
) -> Clustering:
  """Returns the best of several runs of k-means, each with new initial centres.

  Args:
    gram: Inner products of the points, float64 `[points, points]`.
    is_real: bool `[points]`; other points are ignored.
    num_clusters: >= 1.
    seed: int32 `[2]`; the same gives the same result.
    num_restarts: Runs, >= 1; that of the lowest inertia is kept, the first on a
      tie.
    max_iterations: Of each run, >= 1.
  """

  def run(restart: tf.Tensor, best: Clustering) -> tuple[tf.Tensor, Clustering]:
    start = _plus_plus(gram, is_real, num_clusters, seed, restart)
    found = lloyd(gram, is_real, start, num_clusters, max_iterations)
    is_better = found.inertia < best.inertia
    return restart + 1, Clustering(
      *(tf.where(is_better, *pair) for pair in zip(found, best, strict=True))
    )

  nothing = Clustering(
    tf.zeros_like(is_real, tf.int32),
    tf.constant(float('inf'), tf.float64),
    tf.constant(0),
  )
  _, best = tf.while_loop(
    lambda restart, _: restart < num_restarts,
    run,
    (tf.constant(0), nothing),
    parallel_iterations=1,
  )
  return best


def lloyd(
  gram: tf.Tensor,
  is_real: tf.Tensor,
  assignment: tf.Tensor,
  num_clusters: int,
  max_iterations: int = MAX_ITERATIONS,
) -> Clustering:
  """Returns the clustering after Lloyd's iterations: no assignment changes.

  Args:
    gram: As of `k_means`.
    is_real: As of `k_means`.
    assignment: Initial assignment, int32 `[points]`.
    num_clusters: >= 1.
    max_iterations: >= 1.
  """

  def step(
    assignment: tf.Tensor, _: tf.Tensor, num_iterations: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    nearest = tf.argmin(
      _distances_to_means(gram, is_real, assignment, num_clusters),
      axis=1,
      output_type=tf.int32,
    )
    has_changed = tf.reduce_any(is_real & tf.not_equal(nearest, assignment))
    return nearest, has_changed, num_iterations + 1

  assignment, _, num_iterations = tf.while_loop(
    lambda _, has_changed, num_iterations: (
      has_changed & (num_iterations < max_iterations)
    ),
    step,
    (assignment, tf.constant(True), tf.constant(0)),
    parallel_iterations=1,
  )
  own = _own_distances(
    gram_lib.squared_distances(
      gram, _means(is_real, assignment, num_clusters)[0]
    ),
    assignment,
  )
  inertia = tf.reduce_sum(tf.where(is_real, own, tf.zeros_like(own)))
  return Clustering(assignment, inertia, num_iterations)


def _means(
  is_real: tf.Tensor, assignment: tf.Tensor, num_clusters: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns means as weights of the points, and which clusters are empty."""
  members = partition_matrices.membership_matrix(
    assignment, tf.cast(is_real, tf.float64), num_clusters
  )
  counts = tf.reduce_sum(members, axis=1, keepdims=True)
  return members / tf.maximum(counts, 1.0), tf.equal(counts[:, 0], 0)


def _own_distances(distances: tf.Tensor, assignment: tf.Tensor) -> tf.Tensor:
  return tf.gather(distances, assignment, batch_dims=1)


def _distances_to_means(
  gram: tf.Tensor, is_real: tf.Tensor, assignment: tf.Tensor, num_clusters: int
) -> tf.Tensor:
  """Returns squared distances to centres, `[points, clusters]`.

  They are infinite for an empty cluster whose centre cannot be moved.
  """
  means, is_empty = _means(is_real, assignment, num_clusters)
  own = _own_distances(gram_lib.squared_distances(gram, means), assignment)
  own = tf.where(is_real, own, tf.zeros_like(own))
  # The first empty cluster moves to the farthest point, the second to the next.
  farthest = tf.argsort(own, direction='DESCENDING', stable=True)
  rank = tf.minimum(tf.cumsum(tf.cast(is_empty, tf.int32)), tf.shape(own)[0])
  place = tf.gather(farthest, tf.maximum(rank - 1, 0))
  placed = tf.one_hot(place, tf.shape(own)[0], dtype=tf.float64)
  distances = gram_lib.squared_distances(
    gram, tf.where(is_empty[:, tf.newaxis], placed, means)
  )
  is_closed = is_empty & tf.equal(tf.gather(own, place), 0)
  return tf.where(is_closed, tf.constant(float('inf'), tf.float64), distances)


def _plus_plus(
  gram: tf.Tensor,
  is_real: tf.Tensor,
  num_clusters: int,
  seed: tf.Tensor,
  restart: tf.Tensor,
) -> tf.Tensor:
  """Returns the nearest k-means++ centre of each point.

  The first centre is drawn uniformly among the points, each further one with
  probability proportional to the squared distance to the nearest centre so far;
  uniformly if all distances are 0.
  """
  everyone = tf.cast(is_real, tf.float64)
  nearest, distances = everyone, []
  for number in range(num_clusters):
    chances = everyone * nearest
    chances = tf.where(tf.reduce_sum(chances) > 0, chances, everyone)
    reached = tf.cumsum(chances)
    bits = index_random.random_bits(seed, restart, tf.constant(number))
    level = tf.cast(bits, tf.float64) / 2**32 * reached[-1]
    drawn = tf.reduce_sum(tf.cast(reached <= level, tf.int32))
    place = tf.one_hot(drawn, tf.shape(reached)[0], dtype=tf.float64)
    distances.append(gram_lib.squared_distances(gram, place[tf.newaxis])[:, 0])
    nearest = tf.reduce_min(tf.stack(distances), axis=0)
  return tf.argmin(tf.stack(distances), axis=0, output_type=tf.int32)
