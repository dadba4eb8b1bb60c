"""Our algorithms as a workload asks for them."""

from benchmarks import workload as workload_lib
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.models import registry as models
from tff_algos.numerics import optimizers
from tff_algos.stages import local_training

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
  }[workload.algorithm]
  entry = algorithms.ALGORITHMS[workload.algorithm]
  return entry.build(
    build_model(workload),
    entry.config_class(
      local_training=local_training_config(workload), **options
    ),
  )
