"""Loss under every cluster model, and cluster assignment of clients by it."""

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
