"""FedAvg: federated averaging of client models (McMahan et al. 2017).

Options give FedProx (Li et al. 2020, arXiv:1812.06127) and FedOpt (Reddi
et al. 2021, arXiv:2003.00295), such as FedAdam.

The template for a new algorithm file: copy it, and keep its order.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    the global model
  client_work     train locally from the global model; upload the result.
                  FedProx: proximal_weight / 2 * |w - global model|^2 is added
                  to the loss
  aggregation     mean of the clients' models, weighted by examples
  server_update   global model <- the mean; FedOpt: a step of an optimizer along
                  mean - global model (`server_optimizer`)

Reductions (tested): one client, or `num_local_epochs=1` with one full batch
and equal clients = gradient descent on the pooled examples.
Cost per client and round: downlink P, uplink P floats, one local solve.
"""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import optimizers, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import client_sampling, global_model
from tff_algos.stages.server import robust_aggregation as robust
from tff_algos.stages.server import server_optimizer as server_optimizer_lib


@dataclasses.dataclass(frozen=True)
class FedAvgConfig:
  """Options of FedAvg.

  Attributes:
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    proximal_weight: mu of FedProx, >= 0; 0 for FedAvg.
    server_optimizer: Server optimizer; SGD with learning rate 1 and no momentum
      takes the mean, up to rounding; another rate interpolates between old
      model and mean.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training; the optimizer state may be kept.
    aggregation: Aggregation rule in place of the mean.
  """

  cohort_size: int = 10
  proximal_weight: float = 0.0
  server_optimizer: optimizers.OptimizerConfig = server_optimizer_lib.REPLACE
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_at_least('proximal_weight', self.proximal_weight, 0)
    checks.check_positive('loss_scale', self.loss_scale)
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: The global model.
    optimizer_slots: Slots of the server optimizer.
  """

  model_weights: model_lib.Weights
  optimizer_slots: Any = ()


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: The client's model after training.
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
    weights = model.initialize(seed)
    return ServerState(
      weights,
      server_optimizer_lib.initial_slots(weights, config.server_optimizer),
    )

  def make_message(server_state):
    return server_state.model_weights

  def train(message, client_input, client_state, data, seed):
    del client_input
    objective = objectives.mean_loss(model, config.loss_scale)
    if config.proximal_weight:
      objective = objectives.ProximalLoss(
        objective, message, config.proximal_weight
      )
    weights, slots, loss = local_training_lib.train_on(
      objective, message, client_state, data, seed, config.local_training
    )
    result = TrainResult(
      local_weights=weights, client_weight=tf.reduce_sum(data.mask)
    )
    return algorithm.ClientOutput(result, slots, OrderedDict(loss=loss))

  def update_model(server_state, aggregates):
    return ServerState(
      *server_optimizer_lib.step(
        server_state.model_weights,
        aggregates['local_weights'],
        server_state.optimizer_slots,
        config.server_optimizer,
      )
    ), OrderedDict()

  return global_model.build_algorithm(
    'fed_avg',
    model,
    init_server_state=robust.checked(config.aggregation, init_server_state),
    init_client_state=lambda run_seed, client_seed: (
      local_training_lib.initial_slots(
        trees.zeros(model.weights_spec()), config.local_training
      )
    ),
    phases={
      'train': robust.replace_means(
        algorithm.Phase(
          name='train',
          make_message=make_message,
          client_work=train,
          aggregation={
            'local_weights': aggregation.WeightedMean('client_weight')
          },
          server_update=update_model,
          uses_client_state=config.local_training.keeps_optimizer_state,
          uploads={'local_weights': lambda message, *_: message},
        ),
        config.aggregation,
        'model_weights',
      )
    },
    plan_round=client_sampling.build_uniform_plan(
      config.cohort_size,
      downlink_floats=num_parameters,
      uplink_floats=num_parameters,
    ),
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
        'optimizer_slots': carrying.OPTIMIZER,
      }
    ),
  )
