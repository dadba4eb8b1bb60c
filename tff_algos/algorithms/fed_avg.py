"""FedAvg: the weighted mean of what clients learn (McMahan et al. 2017).

The template for a new algorithm file: copy it, and keep its order.

Round t:
  plan            draw `cohort_size` clients uniformly
  make_message    the global model
  client_work     train locally from the global model; upload the result
  aggregation     mean of the clients' models, weighted by examples
  server_update   global model <- the mean (server_learning_rate 1; else so
                  much of the way from the global model to the mean)

Reductions (tested): one client, or `num_local_epochs=1` with one full batch
and equal clients = gradient descent on the pooled examples.
Cost per client and round: downlink P, uplink P floats, one local solve.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, checks, seeds
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.stages import aggregation, cohort, objectives
from tff_algos.stages import local_training as local_training_lib


@dataclasses.dataclass(frozen=True)
class FedAvgConfig:
  """Options of FedAvg.

  Attributes:
    cohort_size: Clients drawn a round, >= 1.
    server_learning_rate: How far the global model goes towards the mean of
      the clients' models, > 0; 1 replaces it by the mean.
    loss_scale: Factor on the loss, > 0.
    local_training: How a client trains.
  """

  cohort_size: int = 10
  server_learning_rate: float = 1.0
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=1)
    checks.check_positive('server_learning_rate', self.server_learning_rate)
    checks.check_positive('loss_scale', self.loss_scale)


class ServerState(NamedTuple):
  """What survives a round at the server.

  Attributes:
    model_weights: The global model.
  """

  model_weights: model_lib.Weights


class TrainResult(NamedTuple):
  """What a client uploads.

  Attributes:
    local_weights: Its model after training.
    client_weight: Number of examples, float32 `[]`.
  """

  local_weights: model_lib.Weights
  client_weight: tf.Tensor


def build_fed_avg(
  model: model_lib.Model, config: FedAvgConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedAvg for a model."""
  num_parameters = trees.num_entries(model.weights_spec())

  def init_server_state(seed, num_clients):
    del num_clients
    return ServerState(model.initialize(seed))

  def make_message(server_state):
    return server_state.model_weights

  def train(message, client_input, client_state, data, seed):
    del client_input
    objective = objectives.mean_loss(model, config.loss_scale)
    weights, loss = local_training_lib.train(
      objective, message, data, seed, config.local_training
    )
    result = TrainResult(
      local_weights=weights, client_weight=tf.reduce_sum(data.mask)
    )
    return algorithm.ClientOutput(result, client_state, OrderedDict(loss=loss))

  def update_model(server_state, aggregates):
    mean, old = aggregates['local_weights'], server_state.model_weights
    step = trees.scale(
      trees.subtract(old, mean.value), config.server_learning_rate
    )
    # If nobody contributed, the mean is of nothing.
    return ServerState(
      trees.select(mean.weight > 0, trees.subtract(old, step), old)
    ), OrderedDict()

  def plan_round(server_state, population, round_num, seed):
    del server_state
    cohort.check_cohort_size('cohort_size', config.cohort_size, population)
    drawn = cohort.draw_uniform(
      population,
      config.cohort_size,
      seeds.numpy_generator(seed, 'cohort', round_num),
    )
    floats = len(drawn) * num_parameters
    yield algorithm.PhaseCall(
      'train', drawn, (), algorithm.Cost(floats, floats, len(drawn))
    )

  return algorithm.FederatedAlgorithm(
    name='fed_avg',
    num_clusters=1,
    init_server_state=init_server_state,
    init_client_state=lambda run_seed, client_seed: (),
    phases={
      'train': algorithm.Phase(
        name='train',
        make_message=make_message,
        client_work=train,
        aggregation={
          'local_weights': aggregation.WeightedMean('client_weight')
        },
        server_update=update_model,
        uses_client_state=False,
      )
    },
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
