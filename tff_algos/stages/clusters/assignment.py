"""Cluster assignment of examples and clients by loss; importance weights."""

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics


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

  def losses_of(weights):
    losses = model.example_losses(model.apply(weights, data.x), data.y)
    return tf.where(tf.math.is_nan(losses), float('inf'), losses)

  return model.map_stacked(losses_of, cluster_weights)


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
  counts = tf.math.unsorted_segment_sum(mask, best, losses.shape[0])
  fits_one = tf.math.is_finite(tf.reduce_min(losses, axis=0))
  return tf.where(tf.reduce_all(fits_one | (mask <= 0)), counts, float('nan'))


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
