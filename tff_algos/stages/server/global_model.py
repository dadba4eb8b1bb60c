"""What algorithms with one model at the server have in common.

Their server state holds it as `model_weights`, and it serves everybody.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.server import client_sampling


def build_algorithm(
  name: str,
  model: model_lib.Model,
  *,
  init_server_state: Callable[[tf.Tensor, int], Structure],
  phases: Mapping[str, algorithm.Phase],
  plan_round: Callable[..., algorithm.RoundPlan],
  init_client_state: Callable[[], Structure] = tuple,
) -> algorithm.FederatedAlgorithm:
  """Returns the algorithm whose global model serves every client.

  Args:
    name: Its key in the registry.
    model: Of the server.
    init_server_state: As of `FederatedAlgorithm`; its result has
      `model_weights`.
    phases: name -> Phase.
    plan_round: As of `FederatedAlgorithm`.
    init_client_state: () -> state of a client that never took part.
  """
  return algorithm.FederatedAlgorithm(
    name=name,
    num_clusters=1,
    init_server_state=init_server_state,
    init_client_state=lambda run_seed, client_seed: init_client_state(),
    phases=phases,
    plan_round=plan_round,
    cluster_model=model,
    cluster_weights=lambda server_state: tf.nest.map_structure(
      lambda leaf: leaf[tf.newaxis], server_state.model_weights
    ),
    personalized_model=model,
    personalized_weights=lambda server_state, client_state, client_index: (
      server_state.model_weights
    ),
    membership=lambda server_state, client_state, client_index: tf.ones([1]),
  )


def build_uniform_plan(
  cohort_size: int, *, downlink_floats: int, uplink_floats: int
) -> Callable[..., algorithm.RoundPlan]:
  """Returns the plan of one phase, `'train'`, on clients uniformly drawn.

  Args:
    cohort_size: Clients a round, of those that have examples.
    downlink_floats: Numbers sent to each of them.
    uplink_floats: Numbers that each sends.
  """

  def plan_round(server_state, population, round_num, seed):
    del server_state
    drawn = client_sampling.draw_some_or_all(
      population, cohort_size, seed, round_num
    )
    count = len(drawn)
    cost = algorithm.Cost(count * downlink_floats, count * uplink_floats, count)
    yield algorithm.PhaseCall('train', drawn, (), cost)

  return plan_round


def received_weights(message: Structure) -> model_lib.Weights:
  """Returns the model in a message: all of it, or its `model_weights`."""
  return getattr(message, 'model_weights', message)


def replace_weights(
  message: Structure, weights: model_lib.Weights
) -> Structure:
  """Returns the message with another model, see `received_weights`."""
  if hasattr(message, 'model_weights'):
    return message._replace(model_weights=weights)
  return weights


def two_uploads(change: str) -> dict[str, Callable[..., Structure]]:
  """Returns `Phase.uploads` of `local_weights` and of one update besides.

  Args:
    change: Field of the result that holds the update.
  """
  return {
    'local_weights': lambda message, *_: received_weights(message),
    change: lambda message, _, result: trees.zeros_like(result[change]),
  }


def mean_or_old(
  mean: aggregation.Mean, old: model_lib.Weights
) -> model_lib.Weights:
  """Returns a mean of models, or the old model if nobody contributed."""
  return trees.select(mean.weight > 0, mean.value, old)


def zeros(model: model_lib.Model) -> model_lib.Weights:
  """Returns zeros like a model's weights."""
  return tf.nest.map_structure(
    lambda spec: tf.zeros(spec.shape, spec.dtype), model.weights_spec()
  )
