"""SCAFFOLD: control variates that correct client drift in local training.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning" (ICML 2020), arXiv:1910.06378,
Algorithm 1, option II.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    the global model x and the sum M c of all c_k
  client_work     y <- y - eta (g(y) - c_k + c), from y = x; then
                  c_k+ <- c_k - c + (x - y) / (steps * eta)
  aggregation     means of y and of c_k+ - c_k, all clients weighted equally
  server_update   x <- x + eta_g (mean y - x); M c <- M c + m mean (c_k+ - c_k)

Names: eta = learning rate of local_training, eta_g = server_learning_rate, m =
  cohort_size, M = num_clients, those with examples, c_k = control, M c =
  control_sum.
Invariant (tested): c is the mean of the c_k of all M clients, also after a run
  is continued with newcomers, whose c_k are zero.
Reductions (tested): with controls of zero a round is FedAvg's.
Cost per client and round: 2 P down (x, M c), 2 P up (y, c_k+ - c_k), one solve;
  a client keeps c_k, P floats. M is not counted.

With momentum, the way that a constant gradient of 1 goes, which is longer,
takes the place of steps * eta, so that the c_k stay gradients.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import control_variates, objectives
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.server import client_sampling, global_model


@dataclasses.dataclass(frozen=True)
class ScaffoldConfig:
  """Options of SCAFFOLD.

  Attributes:
    cohort_size: m, clients sampled a round, >= 0; 0 for all that have examples.
    server_learning_rate: eta_g, > 0.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training, by SGD.
  """

  cohort_size: int = 10
  server_learning_rate: float = 1.0
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_positive('server_learning_rate', self.server_learning_rate)
    checks.check_positive('loss_scale', self.loss_scale)
    local_training_lib.check_plain_sgd(self.local_training)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: x.
    control_sum: M c, like the model.
  """

  model_weights: model_lib.Weights
  control_sum: model_lib.Weights


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    control: c_k, like the model.
  """

  control: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: y.
    control_change: c_k+ - c_k.
    client_weight: 1, float32 `[]`; 0 without examples.
  """

  local_weights: model_lib.Weights
  control_change: model_lib.Weights
  client_weight: tf.Tensor


def build_scaffold(
  model: model_lib.Model, config: ScaffoldConfig
) -> algorithm.FederatedAlgorithm:
  """Builds SCAFFOLD for a model."""
  floats = 2 * trees.num_entries(model.weights_spec())
  mean = aggregation.WeightedMean('client_weight')
  return global_model.build_algorithm(
    'scaffold',
    model,
    init_server_state=lambda seed, num_clients: ServerState(
      model.initialize(seed),
      trees.zeros(model.weights_spec()),
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(
      trees.zeros(model.weights_spec())
    ),
    phases={
      'train': algorithm.Phase(
        name='train',
        make_message=lambda server_state: server_state,
        client_work=_build_training(model, config),
        aggregation={'local_weights': mean, 'control_change': mean},
        server_update=_build_update(config),
        client_input=client_sampling.NUM_CLIENTS,
        uploads=global_model.two_uploads('control_change'),
      )
    },
    plan_round=client_sampling.build_uniform_plan(
      config.cohort_size,
      downlink_floats=floats,
      uplink_floats=floats,
      sends_num_clients=True,
    ),
    carry=carrying.Carry(
      {'model_weights': carrying.KEEP, 'control_sum': carrying.CLIENT_SUM}
    ),
  )


def _build_training(model, config):
  base = objectives.mean_loss(model, config.loss_scale)

  def train(message, client_input, client_state, data, seed):
    num_clients = client_input['num_clients']
    control = trees.scale(message.control_sum, 1.0 / num_clients)
    offset = trees.subtract(control, client_state.control)
    weights, loss = local_training_lib.train(
      objectives.tilted(base, offset),
      message.model_weights,
      data,
      seed,
      config.local_training,
    )
    change = control_variates.change(
      message.model_weights, weights, control, data.mask, config.local_training
    )
    result = TrainResult(
      weights, change, client_sampling.client_weight(data, 'uniform')
    )
    state = ClientState(trees.add(client_state.control, change))
    return algorithm.ClientOutput(result, state, OrderedDict(loss=loss))

  return train


def _build_update(config):
  def update(server_state, aggregates):
    old, mean = server_state.model_weights, aggregates['local_weights']
    change = aggregates['control_change']
    moved = trees.interpolate(old, mean.value, config.server_learning_rate)
    total_change = trees.scale(change.value, change.weight)
    return ServerState(
      model_weights=aggregation.mean_or_old(mean._replace(value=moved), old),
      control_sum=trees.add(server_state.control_sum, total_change),
    ), OrderedDict()

  return update
