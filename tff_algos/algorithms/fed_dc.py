"""FedDC: local drift variables decouple and correct client drift.

Gao, Fu, Li, Chen, Xu and Xu, "FedDC: Federated Learning with Non-IID Data via
Local Drift Decoupling and Correction" (CVPR 2022), arXiv:2203.11751.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    the global model x and the sum M c of all c_k
  client_work     minimise the loss + <c - c_k, y> + a/2 |h_k + y - x|^2, from
                  y = x; then c_k+ <- c_k - c + (x - y) / (steps * eta) and
                  h_k <- h_k + y - x
  aggregation     means of y and of c_k+ - c_k, all clients weighted equally
  server_update   M h <- M h + m (mean y - x); x <- mean y + h;
                  M c <- M c + m mean (c_k+ - c_k)

Names: a = proximal_weight, h_k = drift, h = mean of the h_k of all M clients,
  M h = drift_sum, c_k = control, M c = control_sum, eta = learning rate of
  local_training, m = cohort_size, M = num_clients, those with examples.
Reading: a cohort is treated as in the authors' code (gaoliang13/FedDC on
  GitHub), which adds the mean drift of all clients, those that never took part
  included, and keeps c_k as SCAFFOLD does. Its weights by clients' sizes are
  not here.
Invariants (tested): h and c are the means of the h_k and c_k of all M clients.
Cost per client and round: 2 P down (x, M c), 2 P up (y, c_k+ - c_k), one solve;
  a client keeps h_k and c_k, 2 P floats. M is not counted.
With momentum, steps * eta is the way that a constant gradient of 1 goes; c_k
has the gradient of the pull a/2 |...|^2, too, as in the code.
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
class FedDcConfig:
  """Options of FedDC.

  Attributes:
    cohort_size: m, clients sampled a round, >= 0; 0 for all that have examples.
    proximal_weight: a, >= 0.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training, by SGD.
  """

  cohort_size: int = 10
  proximal_weight: float = 0.01
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_at_least('proximal_weight', self.proximal_weight, 0)
    checks.check_positive('loss_scale', self.loss_scale)
    local_training_lib.check_plain_sgd(self.local_training)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: x.
    drift_sum: M h, like the model.
    control_sum: M c, like the model.
  """

  model_weights: model_lib.Weights
  drift_sum: model_lib.Weights
  control_sum: model_lib.Weights


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    drift: h_k, like the model.
    control: c_k, like the model.
  """

  drift: model_lib.Weights
  control: model_lib.Weights


class Message(NamedTuple):
  """Message to a client.

  Attributes:
    model_weights: x.
    control_sum: M c, like the model.
  """

  model_weights: model_lib.Weights
  control_sum: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: y.
    control_change: c_k+ - c_k.
    client_weight: 1, float32 `[]`; 0 without examples.
    num_clients: M, as received, float32 `[]`.
  """

  local_weights: model_lib.Weights
  control_change: model_lib.Weights
  client_weight: tf.Tensor
  num_clients: tf.Tensor


def build_fed_dc(
  model: model_lib.Model, config: FedDcConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedDC for a model."""
  floats = 2 * trees.num_entries(model.weights_spec())
  mean = aggregation.WeightedMean('client_weight')
  zeros = trees.zeros(model.weights_spec())
  return global_model.build_algorithm(
    'fed_dc',
    model,
    init_server_state=lambda seed, num_clients: ServerState(
      model.initialize(seed), zeros, zeros
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(zeros, zeros),
    phases={
      'train': algorithm.Phase(
        name='train',
        make_message=lambda server_state: Message(
          server_state.model_weights, server_state.control_sum
        ),
        client_work=_build_training(model, config),
        aggregation={
          'local_weights': mean,
          'control_change': mean,
          'num_clients': aggregation.Collect(),
        },
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
      {
        'model_weights': carrying.KEEP,
        'drift_sum': carrying.CLIENT_SUM,
        'control_sum': carrying.CLIENT_SUM,
      }
    ),
  )


def _build_training(model, config):
  base = objectives.mean_loss(model, config.loss_scale)

  def train(message, client_input, client_state, data, seed):
    received = message.model_weights
    num_clients = client_input['num_clients']
    control = trees.scale(message.control_sum, 1.0 / num_clients)
    objective = objectives.ProximalLoss(
      objectives.tilted(base, trees.subtract(control, client_state.control)),
      trees.subtract(received, client_state.drift),
      config.proximal_weight,
    )
    weights, loss = local_training_lib.train(
      objective, received, data, seed, config.local_training
    )
    change = control_variates.change(
      received, weights, control, data.mask, config.local_training
    )
    weight = client_sampling.client_weight(data, 'uniform')
    state = ClientState(
      trees.add(client_state.drift, trees.subtract(weights, received)),
      trees.add(client_state.control, change),
    )
    return algorithm.ClientOutput(
      TrainResult(weights, change, weight, num_clients),
      # Without examples the way of a client is undefined.
      trees.select(weight > 0, state, client_state),
      OrderedDict(loss=loss),
    )

  return train


def _build_update(config):
  def update(server_state, aggregates):
    mean, change = aggregates['local_weights'], aggregates['control_change']
    way = trees.subtract(mean.value, server_state.model_weights)
    drift_sum = trees.add(server_state.drift_sum, trees.scale(way, mean.weight))
    num_clients = tf.reduce_max(aggregates['num_clients'].values)
    drift = trees.scale(drift_sum, tf.math.divide_no_nan(1.0, num_clients))
    updated = ServerState(
      trees.add(mean.value, drift),
      drift_sum,
      trees.add(
        server_state.control_sum, trees.scale(change.value, change.weight)
      ),
    )
    # Without contributions, the mean is undefined.
    return trees.select(mean.weight > 0, updated, server_state), OrderedDict()

  return update
