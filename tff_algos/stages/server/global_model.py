"""Algorithms with one global model: what they serve, plans, messages."""

from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.server import client_sampling


def _no_state(run_seed: tf.Tensor, client_seed: tf.Tensor) -> tuple[()]:
  del run_seed, client_seed
  return ()


def _model_weights(server_state: Structure) -> model_lib.Weights:
  return server_state.model_weights


def build_algorithm(
  name: str,
  model: model_lib.Model,
  *,
  init_server_state: Callable[[tf.Tensor, int], Structure],
  phases: Mapping[str, algorithm.Phase],
  plan_round: Callable[..., algorithm.RoundPlan],
  init_client_state: Callable[[tf.Tensor, tf.Tensor], Structure] = _no_state,
  global_weights: Callable[[Structure], model_lib.Weights] = _model_weights,
  personalized_weights: algorithm.WeightsOfClient | None = None,
  local_weights: algorithm.WeightsOfClient | None = None,
) -> algorithm.FederatedAlgorithm:
  """Returns an algorithm whose one cluster is all clients.

  Args:
    name: Its key in the registry.
    model: The model, global and personalized.
    init_server_state: As of `FederatedAlgorithm`.
    phases: name -> Phase.
    plan_round: As of `FederatedAlgorithm`.
    init_client_state: As of `FederatedAlgorithm`; by default `()`.
    global_weights: ServerState -> the global model; by default its
      `model_weights`.
    personalized_weights: As of `FederatedAlgorithm`; by default the global
      model serves every client.
    local_weights: As of `FederatedAlgorithm`.
  """
  return algorithm.FederatedAlgorithm(
    name=name,
    num_clusters=1,
    init_server_state=init_server_state,
    init_client_state=init_client_state,
    phases=phases,
    plan_round=plan_round,
    cluster_model=model,
    cluster_weights=lambda server_state: tf.nest.map_structure(
      lambda leaf: leaf[tf.newaxis], global_weights(server_state)
    ),
    personalized_model=model,
    personalized_weights=personalized_weights
    or (
      lambda server_state, client_state, client_index: global_weights(
        server_state
      )
    ),
    membership=lambda server_state, client_state, client_index: tf.ones([1]),
    local_weights=local_weights,
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
    drawn = client_sampling.draw_cohort(
      population, cohort_size, seed, round_num
    )
    count = len(drawn)
    cost = algorithm.Cost(count * downlink_floats, count * uplink_floats, count)
    yield algorithm.PhaseCall('train', drawn, (), cost)

  return plan_round


def local_phase(
  name: str,
  client_work: Callable[..., algorithm.ClientOutput],
  make_message: Callable[[Structure], Structure] = _model_weights,
) -> algorithm.Phase:
  """Returns a phase of client work that uploads nothing, such as `personalize`.

  Args:
    name: Of the phase.
    client_work: As of `Phase`, with an empty result.
    make_message: As of `Phase`; by default the state's `model_weights`.
  """
  return algorithm.Phase(
    name=name,
    make_message=make_message,
    client_work=client_work,
    aggregation={},
    server_update=lambda server_state, aggregates: (
      server_state,
      OrderedDict(),
    ),
  )


def local_call(
  phase: str, client_indices: np.ndarray, downlink_floats: int
) -> algorithm.PhaseCall:
  """Returns the call of a `local_phase`: one local solve a client.

  Args:
    phase: Its name.
    client_indices: int32 `[cohort]`.
    downlink_floats: Numbers sent to each of them; 0 where they have them
      already.
  """
  count = len(client_indices)
  cost = algorithm.Cost(count * downlink_floats, local_solves=count)
  return algorithm.PhaseCall(phase, client_indices, (), cost)


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
