"""Where the cluster models start."""

import tensorflow as tf

from tff_algos.core import model as model_lib


def cluster_models(
  model: model_lib.Model, num_clusters: int, seed: tf.Tensor
) -> model_lib.Weights:
  """Returns an independent draw of the model's weights for each cluster.

  Equal cluster models would tie on every example, and all but the first would
  stay without clients for ever.

  Args:
    model: The model that all clusters share.
    num_clusters: How many, >= 1.
    seed: int32 `[2]`; algorithms with the same seed start alike.

  Returns:
    Weights `[num_clusters, ...]`.
  """
  drawn = [
    model.initialize(tf.random.experimental.stateless_fold_in(seed, s))
    for s in range(num_clusters)
  ]
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *drawn)
