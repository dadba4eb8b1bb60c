"""Our algorithms as a workload asks for them."""

import dataclasses
from collections import OrderedDict
from typing import Any

import tensorflow as tf

from benchmarks import workload as workload_lib
from tff_algos.algorithms import registry as algorithms
from tff_algos.algorithms.cmfl import committee
from tff_algos.algorithms.ppfl import affinity
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.models import registry as models
from tff_algos.numerics import optimizers, partition_matrices, trees
from tff_algos.stages.client import local_training, moreau_envelope

# Round 1 estimates; no round that is timed does.
_NEVER_AGAIN = 1_000_000


def build_model(workload: workload_lib.Workload) -> model_lib.Model:
  """Returns the workload's model."""
  section = {
    'linear': {'name': 'logistic_regression'},
    'mlp': {'name': 'mlp', 'hidden_sizes': (workload.hidden_size,)},
    'cnn': {'name': 'letters_cnn'},
    'lenet': {'name': 'lenet', 'variant': 'fed_dyn'},
  }[workload.model]
  if workload.num_atoms:
    section['decomposition'] = {'num_atoms': workload.num_atoms}
  return models.build_model(
    models.parse_config(section),
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
  entry = algorithms.ALGORITHMS[workload.algorithm]
  run_seed = {'run_seed': workload.seed} if entry.takes_run_seed else {}
  options = entry.config_class(**_options(workload, entry.config_class))
  return entry.build(build_model(workload), options, **run_seed)


def _options(
  workload: workload_lib.Workload, config_class: type
) -> dict[str, Any]:
  """Returns what makes everybody take part and train as the workload says."""
  defaults = {
    field.name: field.default for field in dataclasses.fields(config_class)
  }
  options: dict[str, Any] = {}
  if defaults.get('cohort_size'):  # Else all take part as it is.
    options['cohort_size'] = workload.num_clients
  if 'num_clusters' in defaults:
    options['num_clusters'] = workload.num_clusters
  for name, default in defaults.items():
    if isinstance(default, local_training.LocalTrainingConfig):
      options[name] = local_training_config(workload)
    if isinstance(default, moreau_envelope.MoreauEnvelopeConfig):
      options[name] = _moreau_envelope_config(workload)
  return options | {
    workload_lib.FED_SOFT: {
      'selection': 'weighted_full',
      'estimation_interval': _NEVER_AGAIN,
    },
    workload_lib.PPFL: {'laplacian': affinity.LaplacianConfig(1e-5)},
    workload_lib.CMFL: {'committee': committee.CommitteeConfig(active_rate=1)},
    workload_lib.PER_FED_AVG: {
      'num_local_steps': workload.num_examples // workload.batch_size,
      'batch_size': workload.batch_size,
    },
  }.get(workload.algorithm, {})


def _moreau_envelope_config(
  workload: workload_lib.Workload,
) -> moreau_envelope.MoreauEnvelopeConfig:
  """Returns 10 times 5 steps, as configs/three_classes.py, at another rate."""
  return moreau_envelope.MoreauEnvelopeConfig(
    batch_size=workload.batch_size, personal_learning_rate=0.05
  )


def _without_k_means(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns pFedKM whose clients stay in the clusters that they start in."""

  def average(server_state, aggregates):
    uploads = aggregates['local_weights']
    averaging = partition_matrices.averaging_matrix(
      tf.gather(server_state.cluster_assignment, uploads.client_index),
      aggregates['client_weight'].values,
      algorithm.num_clusters,
    )
    means = trees.mix(tf.transpose(averaging), uploads.values)
    return server_state._replace(cluster_models=means), OrderedDict()

  phase = algorithm.phases['train']._replace(server_update=average)
  return dataclasses.replace(algorithm, phases={'train': phase})
