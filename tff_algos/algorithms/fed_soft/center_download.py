"""Download of a sampled client: all cluster models, or their weighted mean.

Both forms are client inputs with the client's weights in the clusters' means,
and both determine its proximal term (`joint_pull`).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import model as model_lib
from tff_algos.core.structures import Leaf, Structure
from tff_algos.numerics import proximal

DOWNLOADS = ('all_centers', 'mixed_center')


class TrainInput(NamedTuple):
  """Client input besides the broadcast cluster models.

  Attributes:
    importance_weights: The client's u, `[num_clusters]` float32.
    cluster_weights: Weight of the client's model in each cluster's mean,
      `[num_clusters]` float32: the number of its slots, or its v.
  """

  importance_weights: Leaf
  cluster_weights: Leaf

  def joint_pull(self, cluster_models: Structure) -> proximal.Pull:
    """Returns the proximal term of the broadcast cluster models."""
    return proximal.joint_pull(self.importance_weights, cluster_models)


class MixedTrainInput(NamedTuple):
  """Client input in place of the cluster models.

  Attributes:
    pull: The cluster models' joint proximal term: weighted mean and weight.
    cluster_weights: As in `TrainInput`.
  """

  pull: proximal.Pull
  cluster_weights: Leaf

  def joint_pull(self, message: Structure) -> proximal.Pull:
    """Returns the proximal term; the broadcast message is empty."""
    del message
    return self.pull


def input_spec(
  download: str, model: model_lib.Model, num_clusters: int
) -> TrainInput | MixedTrainInput:
  """Returns `Phase.client_input`.

  Args:
    download: One of `DOWNLOADS`.
    model: The model of all clusters.
    num_clusters: >= 1.
  """
  each_cluster = tf.TensorSpec([num_clusters], tf.float32)
  if download == 'all_centers':
    return TrainInput(each_cluster, each_cluster)
  pull = proximal.Pull(model.weights_spec(), tf.TensorSpec([], tf.float32))
  return MixedTrainInput(pull, each_cluster)


def inputs(
  download: str,
  cluster_models: Structure,
  importance_weights: np.ndarray,
  cluster_weights: np.ndarray,
) -> TrainInput | MixedTrainInput:
  """Returns the inputs of a cohort, NumPy.

  Args:
    download: One of `DOWNLOADS`.
    cluster_models: `[num_clusters, ...]`.
    importance_weights: float32 `[cohort, num_clusters]`.
    cluster_weights: float32 `[cohort, num_clusters]`.
  """
  if download == 'all_centers':
    return TrainInput(importance_weights, cluster_weights)
  pull = proximal.joint_pull(importance_weights, cluster_models)
  return MixedTrainInput(
    tf.nest.map_structure(np.asarray, pull), cluster_weights
  )
