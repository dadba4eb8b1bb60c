"""FedDC: local drift variables decouple and correct client drift.

Gao, Fu, Li, Chen, Xu and Xu, "FedDC: Federated Learning with Non-IID Data via
Local Drift Decoupling and Correction" (CVPR 2022), arXiv:2203.11751.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    the global model x, and last round's mean change of the cohort
  client_work     minimise the loss + a/2 |h_k + y - x|^2
                  + <y, g_k - mean change> / (steps * eta), from y = x; then
                  g_k <- y - x and h_k <- h_k + g_k
  aggregation     means of y + h_k and of g_k, all clients weighted equally
  server_update   x <- the mean of y + h_k; mean change <- the mean of g_k

Names: a = proximal_weight, h_k = drift, eta = learning rate of local_training;
  change_per_rate = g_k / eta, by which g_k follows a learning-rate schedule.
With momentum, steps * eta is the way that a constant gradient of 1 would go.
Reductions (tested): a = 0 without drift and correction is FedAvg, all clients
  alike.
Cost per client and round: 2 P down, 2 P up (y + h_k, g_k), one solve; a client
  keeps h_k and g_k, 2 P floats.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import client_sampling, global_model


@dataclasses.dataclass(frozen=True)
class FedDcConfig:
  """Options of FedDC.

  Attributes:
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    proximal_weight: a, >= 0.
    follows_drift: False keeps every h_k at 0.
    corrects_gradients: False leaves out the term with g_k.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training, by SGD.
  """

  cohort_size: int = 10
  proximal_weight: float = 0.01
  follows_drift: bool = True
  corrects_gradients: bool = True
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
    mean_change_per_rate: Mean of the last uploaded g_k / eta, like the model.
  """

  model_weights: model_lib.Weights
  mean_change_per_rate: model_lib.Weights


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    drift: h_k, like the model.
    change_per_rate: g_k / eta, like the model.
  """

  drift: model_lib.Weights
  change_per_rate: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: y + h_k.
    change: g_k.
    client_weight: 1, float32 `[]`; 0 without examples.
  """

  local_weights: model_lib.Weights
  change: model_lib.Weights
  client_weight: tf.Tensor


def build_fed_dc(
  model: model_lib.Model, config: FedDcConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedDC for a model."""
  floats = 2 * trees.num_entries(model.weights_spec())
  mean = aggregation.WeightedMean('client_weight')
  rate = config.local_training.optimizer.learning_rate

  def update(server_state, aggregates):
    change = aggregates['change']
    return ServerState(
      aggregation.mean_or_old(
        aggregates['local_weights'], server_state.model_weights
      ),
      aggregation.mean_or_old(
        change._replace(value=trees.scale(change.value, 1 / rate)),
        server_state.mean_change_per_rate,
      ),
    ), OrderedDict()

  return global_model.build_algorithm(
    'fed_dc',
    model,
    init_server_state=lambda seed, num_clients: ServerState(
      model.initialize(seed), trees.zeros(model.weights_spec())
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(
      trees.zeros(model.weights_spec()), trees.zeros(model.weights_spec())
    ),
    phases={
      'train': algorithm.Phase(
        name='train',
        # The server state consists of the model and the mean change.
        make_message=lambda server_state: server_state,
        client_work=_build_training(model, config),
        aggregation={'local_weights': mean, 'change': mean},
        server_update=update,
        uploads=global_model.two_uploads('change'),
      )
    },
    plan_round=client_sampling.build_uniform_plan(
      config.cohort_size, downlink_floats=floats, uplink_floats=floats
    ),
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
        'mean_change_per_rate': carrying.KEEP,
      }
    ),
  )


def _build_training(model, config):
  base = objectives.mean_loss(model, config.loss_scale)
  rate = config.local_training.optimizer.learning_rate

  def train(message, client_input, client_state, data, seed):
    del client_input
    received = message.model_weights
    objective = base
    if config.corrects_gradients:
      distance = local_training_lib.distance_per_gradient(
        data.mask, config.local_training
      )
      offset = trees.subtract(
        client_state.change_per_rate, message.mean_change_per_rate
      )
      objective = objectives.tilted(
        base, trees.scale(offset, tf.math.divide_no_nan(rate, distance))
      )
    if config.proximal_weight:
      objective = objectives.ProximalLoss(
        objective,
        trees.subtract(received, client_state.drift),
        config.proximal_weight,
      )
    weights, loss = local_training_lib.train(
      objective, received, data, seed, config.local_training
    )
    weight = client_sampling.client_weight(data, 'uniform')
    change = trees.subtract(weights, received)
    drift = client_state.drift
    if config.follows_drift:
      drift = trees.add(drift, change)
    result = TrainResult(trees.add(weights, drift), change, weight)
    state = ClientState(drift, trees.scale(change, 1 / rate))
    # Without examples the change is undefined.
    state = trees.select(weight > 0, state, client_state)
    return algorithm.ClientOutput(result, state, OrderedDict(loss=loss))

  return train
