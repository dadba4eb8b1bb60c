"""Our algorithms as a workload asks for them."""

import dataclasses
from collections import OrderedDict

import tensorflow as tf

from benchmarks import workload as workload_lib
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.models import registry as models
from tff_algos.numerics import optimizers, partitions, trees
from tff_algos.stages import affinity, local_training, moreau_envelope

# Round 1 estimates; no round that is timed does.
_NEVER_AGAIN = 1_000_000


def build_model(workload: workload_lib.Workload) -> model_lib.Model:
  """Returns the workload's model."""
  section = {
    'linear': {'name': 'logistic_regression'},
    'mlp': {'name': 'mlp', 'hidden_sizes': (workload.hidden_size,)},
    'cnn': {'name': 'letters_cnn'},
  }[workload.model]
  return models.build_model(
    section,
    task=model_lib.CLASSIFICATION,
    input_shape=workload.input_shape,
    num_outputs=workload.num_classes,
  )


def local_training_config(
  workload: workload_lib.Workload,
) -> local_training.LocalTrainingConfig:
  """Returns how a client trains: one epoch of plain SGD."""
  return local_training.LocalTrainingConfig(
    num_local_epochs=1,
    batch_size=workload.batch_size,
    optimizer=optimizers.OptimizerConfig(
      'sgd', learning_rate=workload.learning_rate
    ),
  )


def build_algorithm(
  workload: workload_lib.Workload,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the workload's algorithm, with all clients in every cohort."""
  if workload.algorithm == workload_lib.PFEDKM_WITHOUT_K_MEANS:
    pfedkm = dataclasses.replace(workload, algorithm=workload_lib.PFEDKM)
    return _without_k_means(build_algorithm(pfedkm))
  options = {
    workload_lib.FED_AVG: {'cohort_size': workload.num_clients},
    workload_lib.FED_SOFT: {
      'num_clusters': workload.num_clusters,
      'selection': 'weighted_full',
      'estimation_interval': _NEVER_AGAIN,
    },
    workload_lib.IFCA: {
      'num_clusters': workload.num_clusters,
      'cohort_size': workload.num_clients,
    },
    workload_lib.PFEDME: {},
    workload_lib.PFEDKM: {'num_clusters': workload.num_clusters},
    workload_lib.FED_EM: {
      'num_clusters': workload.num_clusters,
      'cohort_size': workload.num_clients,
    },
    workload_lib.PPFL: {
      'num_clusters': workload.num_clusters,
      'laplacian': affinity.LaplacianConfig(1e-5),
    },
  }[workload.algorithm]
  local_training_of = local_training_config
  if workload.algorithm in (workload_lib.PFEDME, workload_lib.PFEDKM):
    local_training_of = _moreau_envelope_config
  entry = algorithms.ALGORITHMS[workload.algorithm]
  return entry.build(
    build_model(workload),
    entry.config_class(local_training=local_training_of(workload), **options),
  )


def _moreau_envelope_config(
  workload: workload_lib.Workload,
) -> moreau_envelope.MoreauEnvelopeConfig:
  """Returns the clients of configs/three_classes.py: 10 times 5 steps."""
  return moreau_envelope.MoreauEnvelopeConfig(
    batch_size=workload.batch_size, personal_learning_rate=0.05
  )


def _without_k_means(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns pFedKM whose clients stay in the clusters that they start in."""

  def average(server_state, aggregates):
    uploads = aggregates['local_weights']
    averaging = partitions.averaging_matrix(
      tf.gather(server_state.cluster_assignment, uploads.client_index),
      aggregates['client_weight'].values,
      algorithm.num_clusters,
    )
    means = trees.mix(tf.transpose(averaging), uploads.values)
    return server_state._replace(cluster_models=means), OrderedDict()

  phase = algorithm.phases['train']._replace(server_update=average)
  return dataclasses.replace(algorithm, phases={'train': phase})
