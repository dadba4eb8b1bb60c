"""Cluster assignment of examples and clients by loss; importance weights."""

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees


def cluster_losses(
  model: model_lib.Model, cluster_weights: Structure, data: algorithm.ClientData
) -> tf.Tensor:
  """Returns the loss of every example under every cluster model.

  Args:
    model: The model of all clusters.
    cluster_weights: `[num_clusters, ...]`.
    data: The examples.

  Returns:
    `[num_clusters, capacity]` float32, one loss an example (never a batch
    mean). NaN is replaced by +infinity: no example is assigned to a model whose
    loss is NaN.
  """
  return model.map_stacked(
    lambda weights: _example_losses(model, weights, data.x, data.y),
    cluster_weights,
  )


def _example_losses(model, weights, x, y):
  losses = model.example_losses(model.apply(weights, x), y)
  return tf.where(
    tf.math.is_nan(losses), tf.fill(tf.shape(losses), float('inf')), losses
  )


def best_cluster(losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  """Returns the cluster of the lowest mean loss over the real examples' labels.

  IFCA, Algorithm 1: the cluster identity estimate.

  Args:
    losses: `[num_clusters, capacity]`, not NaN.
    weights: `[capacity]`, from `Model.loss_weights`.

  Returns:
    Cluster id, int32 `[]`; the lowest on a tie, hence 0 without examples.
  """
  # All means have the same divisor, so sums suffice.
  totals = statistics.weighted_mean(losses, weights).total
  return tf.argmin(totals, output_type=tf.int32)


def best_cluster_counts(losses: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """Returns the number of real examples assigned to each cluster.

  Args:
    losses: `[num_clusters, capacity]`, from `cluster_losses`.
    mask: `[capacity]`.

  Returns:
    `[num_clusters]` float32; a tie counts for the lowest cluster id. All NaN if
    a real example has a finite loss under no cluster (a NaN feature, say): it
    cannot be assigned, and the client's result is rejected.
  """
  best = tf.argmin(losses, axis=0, output_type=tf.int32)
  lowest = tf.reduce_min(losses, axis=0)
  return _count(best, lowest, mask, losses.shape[0])


def _count(best, lowest, mask, num_clusters):
  counts = tf.math.unsorted_segment_sum(mask, best, num_clusters)
  fits_one = tf.math.is_finite(lowest)
  return tf.where(tf.reduce_all(fits_one | (mask <= 0)), counts, float('nan'))


def batched_counts(
  model: model_lib.Model, cluster_weights: Structure, data: algorithm.ClientData
) -> tuple[tf.Tensor, tf.Tensor]:
  """Assigns examples to clusters and counts them, all clusters at once.

  Args:
    model: The model of all clusters.
    cluster_weights: `[num_clusters, ...]`.
    data: The examples.

  Returns:
    `best_cluster_counts`, and the lowest loss of each example, `[capacity]`.
  """
  losses = cluster_losses(model, cluster_weights, data)
  counts = best_cluster_counts(losses, data.mask)
  return counts, tf.reduce_min(losses, axis=0)


def streaming_counts(
  model: model_lib.Model, cluster_weights: Structure, data: algorithm.ClientData
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns `batched_counts`, computed one cluster model after the other.

  The loop carries the lowest loss of each example so far and its cluster. So
  memory is needed for one model, for any number of clusters, and a client may
  score a model before the next one has arrived.
  """
  x, y, mask = data.x, data.y, data.mask
  num_clusters = tf.nest.flatten(cluster_weights)[0].shape[0]

  def score(cluster_id, best, lowest):
    weights = trees.take(cluster_weights, cluster_id)
    losses = _example_losses(model, weights, x, y)
    is_lower = losses < lowest  # A tie keeps the lowest id.
    return (
      cluster_id + 1,
      tf.where(is_lower, cluster_id, best),
      tf.where(is_lower, losses, lowest),
    )

  _, best, lowest = tf.while_loop(
    lambda cluster_id, *_: cluster_id < num_clusters,
    score,
    (
      tf.constant(0),
      tf.zeros_like(mask, tf.int32),
      tf.fill(tf.shape(mask), float('inf')),
    ),
    parallel_iterations=1,
  )
  return _count(best, lowest, mask, num_clusters), lowest


def importance_weights(
  counts: tf.Tensor, num_examples: tf.Tensor, smoother: float
) -> tf.Tensor:
  """Returns max(counts / num_examples, smoother), not renormalised.

  FedSoft, Algorithm 1, lines 3-14. The counts start from zero at every
  estimation (the printed pseudo-code leaves that implicit).

  Args:
    counts: `[num_clusters]`.
    num_examples: `[]`, their sum; without examples, all weights are the
      smoother.
    smoother: Smallest importance, in [0, 1).
  """
  return tf.maximum(counts / tf.maximum(num_examples, 1.0), smoother)
