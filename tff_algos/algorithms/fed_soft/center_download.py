"""What a client is sent of the cluster models: all, or their joint pull on it.

Both are inputs of a client whose upload counts in several clusters' means, and
both say what pulls it (`joint_pull`).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import model as model_lib
from tff_algos.core.structures import Leaf, Structure
from tff_algos.numerics import proximal

DOWNLOADS = ('all_centers', 'mixed_center')


class TrainInput(NamedTuple):
  """What the server sends to one client besides the cluster models.

  Attributes:
    importance_weights: Its u, `[num_clusters]` float32.
    cluster_weights: What its model weighs in each cluster's mean,
      `[num_clusters]` float32: the slots that it fills, or its v.
  """

  importance_weights: Leaf
  cluster_weights: Leaf

  def joint_pull(self, cluster_models: Structure) -> proximal.Pull:
    """Returns the pull of the cluster models, which are broadcast."""
    return proximal.joint_pull(self.importance_weights, cluster_models)


class MixedTrainInput(NamedTuple):
  """What the server sends to one client in place of the cluster models.

  Attributes:
    pull: Their joint pull on the client.
    cluster_weights: As in `TrainInput`.
  """

  pull: proximal.Pull
  cluster_weights: Leaf

  def joint_pull(self, message: Structure) -> proximal.Pull:
    """Returns the pull; the broadcast message is empty."""
    del message
    return self.pull


def input_spec(
  download: str, model: model_lib.Model, num_clusters: int
) -> TrainInput | MixedTrainInput:
  """Returns `Phase.client_input`.

  Args:
    download: One of `DOWNLOADS`.
    model: That all clusters share.
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
