"""Clustering of clients by k-means on their uploaded models.

Tang, Guo and Guo (2021), "Personalized Federated Learning with Clustered
Generalization", Algorithm 1, grouping. k-means numbers its clusters
arbitrarily, so new clusters are matched with the old ones (`name_clusters`);
otherwise the server would mix models of different clusters.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import checks
from tff_algos.core.structures import Structure
from tff_algos.numerics import gram as gram_lib
from tff_algos.numerics import (
  k_means,
  matching,
  partition_matrices,
  trees,
)
from tff_algos.rounds import aggregation

INITIALIZATIONS = ('k-means++', 'cluster_models')


@dataclasses.dataclass(frozen=True)
class KMeansConfig:
  """Options of the clustering of uploads.

  Attributes:
    initialization: `'k-means++'`, or `'cluster_models'` to start from the
      present cluster models.
    num_restarts: Runs of k-means++, of which the best is taken, >= 1.
    max_iterations: Maximal iterations of each run, >= 1.
    weight_names: Weights of the model that are clustered, see
      `weight_groups.weight_names`; none for all, as in the paper.
  """

  initialization: str = 'k-means++'
  num_restarts: int = 10
  max_iterations: int = k_means.MAX_ITERATIONS
  weight_names: tuple[str, ...] = ()

  def __post_init__(self):
    checks.check_one_of('initialization', self.initialization, INITIALIZATIONS)
    checks.check_int('num_restarts', self.num_restarts, minimum=1)
    checks.check_int('max_iterations', self.max_iterations, minimum=1)


class Clusters(NamedTuple):
  """Result of the clustering of uploads.

  Attributes:
    assignment: Cluster of each upload, int32 `[cohort]`.
    found: Result of k-means.
    gram: Inner products of the clustered weights, float64 `[cohort, cohort]`.
  """

  assignment: tf.Tensor
  found: k_means.Clustering
  gram: tf.Tensor


def cluster_uploads(
  uploads: aggregation.Collected,
  cluster_models: Structure,
  before: tf.Tensor,
  seed: tf.Tensor,
  config: KMeansConfig,
) -> Clusters:
  """Clusters the uploads of a cohort.

  Args:
    uploads: Models `[cohort, ...]`.
    cluster_models: `[num_clusters, ...]`.
    before: Old cluster of each client, int32 `[cohort]`. Clients without a
      valid upload keep it; all clients do if all uploads are equal.
    seed: int32 `[2]`.
    config: Options of the clustering.
  """
  num_clusters = tf.nest.flatten(cluster_models)[0].shape[0]
  is_real = uploads.is_valid
  stacks = [
    OrderedDict((n, stack[n]) for n in config.weight_names or stack)
    for stack in (uploads.values, cluster_models)
  ]
  counts = _is_smallest(stacks[0], is_real)
  if config.initialization == 'k-means++':
    gram = gram_lib.centered_gram(stacks[:1], counts)
    found = k_means.k_means(
      gram,
      is_real,
      num_clusters,
      seed,
      config.num_restarts,
      config.max_iterations,
    )
  else:
    counts = tf.concat([counts, tf.zeros([num_clusters], tf.float64)], 0)
    whole = gram_lib.centered_gram(stacks, counts)
    cohort_size = tf.shape(is_real)[0]
    distances = gram_lib.squared_distances(
      whole, tf.eye(tf.shape(counts)[0], dtype=tf.float64)[cohort_size:]
    )[:cohort_size]
    gram = whole[:cohort_size, :cohort_size]
    found = k_means.lloyd(
      gram,
      is_real,
      tf.argmin(distances, axis=1, output_type=tf.int32),
      num_clusters,
      config.max_iterations,
    )
  norms = tf.where(is_real, tf.linalg.diag_part(gram), 0)
  is_fresh = is_real & (tf.reduce_max(norms) > 0)
  assignment = tf.where(is_fresh, found.assignment, before)
  return Clusters(assignment, found, gram)


def _is_smallest(uploads: Structure, is_real: tf.Tensor) -> tf.Tensor:
  """Returns 1 for the real upload of the smallest norm, else 0, float64.

  The others are seen from it: seen from a mean, which one huge upload could
  move anywhere, the distances between all others would be rounding.
  """
  norms = trees.squared_row_norms(uploads, tf.size(is_real))
  smallest = tf.argmin(tf.where(is_real, norms, float('inf')))
  return tf.one_hot(smallest, tf.size(is_real), dtype=tf.float64)


def name_clusters(
  before: tf.Tensor,
  after: tf.Tensor,
  is_real: tf.Tensor,
  cluster_models: Structure,
  means: Structure,
) -> tf.Tensor:
  """Matches new clusters with old cluster numbers.

  The matching maximizes the number of clients that keep their number; ties are
  broken by the smallest sum of squared distances between models, and then, as
  in round 1 where all cluster models are equal, by the lexicographically
  smallest permutation.

  Args:
    before: Old cluster of each client, int32 `[cohort]`.
    after: New cluster of each client, int32 `[cohort]`.
    is_real: Clients that count, bool `[cohort]`.
    cluster_models: Models of the old clusters, `[num_clusters, ...]`.
    means: Means of the new clusters, `[num_clusters, ...]`.

  Returns:
    New cluster of each old number, a permutation, int32 `[num_clusters]`.
  """
  num_clusters = tf.nest.flatten(means)[0].shape[0]
  weights = tf.cast(is_real, tf.float64)
  common = tf.matmul(
    partition_matrices.membership_matrix(before, weights, num_clusters),
    partition_matrices.membership_matrix(after, weights, num_clusters),
    transpose_b=True,
  )
  gram = gram_lib.centered_gram(
    (cluster_models, means), tf.ones([2 * num_clusters], tf.float64)
  )
  one_hot = tf.eye(2 * num_clusters, dtype=tf.float64)[num_clusters:]
  distances = gram_lib.squared_distances(gram, one_hot)[:num_clusters]
  # All distances together have less weight than one client.
  most = 2 * num_clusters * tf.maximum(tf.reduce_max(distances), 1e-300)
  return matching.best_matching(common - distances / most)


def rename(assignment: tf.Tensor, names: tf.Tensor) -> tf.Tensor:
  """Returns the assignment in old numbers, see `name_clusters`."""
  return tf.gather(tf.math.invert_permutation(names), assignment)


def measure(
  before: tf.Tensor,
  after: tf.Tensor,
  is_real: tf.Tensor,
  clusters: Clusters,
  cluster_models: Structure,
) -> OrderedDict[str, tf.Tensor]:
  """Returns the metrics of a round's clustering, as scalars.

  Args:
    before: Old cluster of each client, int32 `[cohort]`.
    after: New cluster of each client, in the same numbers.
    is_real: Clients that count, bool `[cohort]`.
    clusters: Result of `cluster_uploads`.
    cluster_models: The new cluster models, `[num_clusters, ...]`.

  Returns:
    `transition_distance`, the Frobenius norm of the transition matrix minus the
    identity; `moved_clients`, the share of clients that changed cluster;
    iterations and inertia of k-means; mean Euclidean distances between the
    clustered models, overall, within and between clusters; and between the
    cluster models. A mean over no pairs is NaN.
  """
  num_clusters = tf.nest.flatten(cluster_models)[0].shape[0]
  counts = tf.cast(is_real, tf.float64)
  transition = partition_matrices.transition_matrix(
    before, after, counts, num_clusters
  )
  has_moved = counts * tf.cast(tf.not_equal(before, after), tf.float64)
  everyone = tf.ones([num_clusters])
  models = gram_lib.mean_distances(
    gram_lib.centered_gram([cluster_models], tf.cast(everyone, tf.float64)),
    tf.range(num_clusters),
    everyone > 0,
  )
  local = gram_lib.mean_distances(clusters.gram, after, is_real)
  return OrderedDict(
    transition_distance=tf.norm(
      transition - tf.eye(num_clusters, dtype=tf.float64)
    ),
    moved_clients=tf.math.divide_no_nan(
      tf.reduce_sum(has_moved), tf.reduce_sum(counts)
    ),
    k_means_iterations=clusters.found.num_iterations,
    k_means_inertia=clusters.found.inertia,
    local_model_distance=local.overall,
    local_model_distance_within=local.within,
    local_model_distance_between=local.between,
    cluster_model_distance=models.overall,
  )
