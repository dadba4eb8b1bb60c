"""Builder of algorithms with one global model: messages, weights."""

from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm, carrying
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees


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
  carry: carrying.Carry,
  init_client_state: Callable[[tf.Tensor, tf.Tensor], Structure] = _no_state,
  global_weights: Callable[[Structure], model_lib.Weights] = _model_weights,
  personalized_weights: algorithm.WeightsOfClient | None = None,
) -> algorithm.FederatedAlgorithm:
  """Returns an algorithm with a single cluster of all clients.

  Args:
    name: Key of the algorithm in the registry.
    model: The model, global and personalized.
    init_server_state: As in `FederatedAlgorithm`.
    phases: name -> Phase.
    plan_round: As in `FederatedAlgorithm`.
    carry: As in `FederatedAlgorithm`.
    init_client_state: As in `FederatedAlgorithm`; by default `()`.
    global_weights: ServerState -> the global model; by default its
      `model_weights`.
    personalized_weights: As in `FederatedAlgorithm`; by default the global
      model is served to every client.
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
    carry=carry,
    serves_global=personalized_weights is None,
  )


def local_phase(
  name: str,
  client_work: Callable[..., algorithm.ClientOutput],
  make_message: Callable[[Structure], Structure] = _model_weights,
) -> algorithm.Phase:
  """Returns a phase of client work without upload, such as `personalize`.

  Args:
    name: Name of the phase.
    client_work: As in `Phase`, with an empty result.
    make_message: As in `Phase`; by default the state's `model_weights`.
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
    phase: Name of the phase.
    client_indices: int32 `[cohort]`.
    downlink_floats: Numbers sent to each client; 0 if the clients have received
      them already.
  """
  count = len(client_indices)
  cost = algorithm.Cost(count * downlink_floats, local_solves=count)
  return algorithm.PhaseCall(phase, client_indices, (), cost)


def received_weights(message: Structure) -> model_lib.Weights:
  """Returns the model in a message: the message, or its `model_weights`."""
  return getattr(message, 'model_weights', message)


def two_uploads(change: str) -> dict[str, Callable[..., Structure]]:
  """Returns `Phase.uploads` of `local_weights` and one update.

  Args:
    change: Field of the result that holds the update.
  """
  return {
    'local_weights': lambda message, *_: received_weights(message),
    change: lambda message, _, result: trees.zeros_like(result[change]),
  }
