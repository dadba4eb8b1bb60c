"""FedDyn: dynamic regularization aligns local optima with the global optimum.

Acar, Zhao, Navarro, Mattina, Whatmough and Saligrama, "Federated Learning Based
on Dynamic Regularization" (ICLR 2021), arXiv:2111.04263, Algorithm 1.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    the global model x
  client_work     minimise the loss - <l_k, y> + a/2 |y - x|^2 from y = x; then
                  l_k <- l_k - a (y - x)
  aggregation     mean of y, all clients weighted equally
  server_update   M h <- M h - a m (mean y - x); x <- mean y - h / a

Names: a = proximal_weight (the paper's alpha), l_k = gradient of the local loss
  (equal to it after an exact solve), h = mean of the l_k of all M clients,
  M h = gradient_sum, m = cohort_size, M = num_clients, those with examples.
Fixed point (tested): with exact solves x converges to the minimum of the mean
  loss, for any heterogeneity of the clients.
Cost per client and round: downlink P, uplink P floats, one solve; a client
  keeps l_k, P floats. M is not counted.
Precision: h / a is a sum of differences of float32 models, so it carries their
  rounding. After four rounds of a full-batch regression, against float64, the
  error of h was 4e-6 of |h| where |h| / a was 2 % of |x|, 4e-5 at 0.2 % and
  9e-5 at 0.02 %; that of x was below 4e-7. Rounding of the uploads alone makes
  8e-7, 9e-6 and 3e-6 of it, which no compensated sum at the server can mend.
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
from tff_algos.stages.server import robust_aggregation as robust


@dataclasses.dataclass(frozen=True)
class FedDynConfig:
  """Options of FedDyn.

  Attributes:
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    proximal_weight: a, > 0. The server multiplies by 1 / a.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training.
    aggregation: Aggregation rule in place of the mean; the server's correction
      uses its result.
  """

  cohort_size: int = 10
  proximal_weight: float = 0.01
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_positive('proximal_weight', self.proximal_weight)
    checks.check_positive('loss_scale', self.loss_scale)
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: x.
    gradient_sum: M h, like the model.
  """

  model_weights: model_lib.Weights
  gradient_sum: model_lib.Weights


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    gradient: l_k, like the model.
  """

  gradient: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: y.
    client_weight: 1, float32 `[]`; 0 without examples.
    num_clients: M, as received, float32 `[]`.
  """

  local_weights: model_lib.Weights
  client_weight: tf.Tensor
  num_clients: tf.Tensor


def build_fed_dyn(
  model: model_lib.Model, config: FedDynConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedDyn for a model."""
  num_parameters = trees.num_entries(model.weights_spec())
  return global_model.build_algorithm(
    'fed_dyn',
    model,
    init_server_state=robust.checked(
      config.aggregation,
      lambda seed, num_clients: ServerState(
        model.initialize(seed),
        trees.zeros(model.weights_spec()),
      ),
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(
      trees.zeros(model.weights_spec())
    ),
    phases={
      'train': robust.replace_means(
        algorithm.Phase(
          name='train',
          make_message=lambda server_state: server_state.model_weights,
          client_work=_build_training(model, config),
          aggregation={
            'local_weights': aggregation.WeightedMean('client_weight'),
            'num_clients': aggregation.Collect(),
          },
          server_update=_build_update(config),
          client_input=client_sampling.NUM_CLIENTS,
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
      sends_num_clients=True,
    ),
    carry=carrying.Carry(
      {'model_weights': carrying.KEEP, 'gradient_sum': carrying.CLIENT_SUM}
    ),
  )


def _build_training(model, config):
  base = objectives.mean_loss(model, config.loss_scale)

  def train(message, client_input, client_state, data, seed):
    objective = objectives.ProximalLoss(
      objectives.tilted(base, trees.scale(client_state.gradient, -1.0)),
      message,
      config.proximal_weight,
    )
    weights, loss = local_training_lib.train(
      objective, message, data, seed, config.local_training
    )
    way = trees.subtract(weights, message)
    gradient = trees.subtract(
      client_state.gradient, trees.scale(way, config.proximal_weight)
    )
    weight = client_sampling.client_weight(data, 'uniform')
    # Without examples the gradient is undefined.
    state = trees.select(weight > 0, ClientState(gradient), client_state)
    return algorithm.ClientOutput(
      TrainResult(weights, weight, client_input['num_clients']),
      state,
      OrderedDict(loss=loss),
    )

  return train


def _build_update(config):
  def update(server_state, aggregates):
    mean, old = aggregates['local_weights'], server_state.model_weights
    way = trees.subtract(mean.value, old)
    gradient_sum = trees.subtract(
      server_state.gradient_sum,
      trees.scale(way, config.proximal_weight * mean.weight),
    )
    num_clients = tf.reduce_max(aggregates['num_clients'].values)
    factor = tf.math.divide_no_nan(1.0, config.proximal_weight * num_clients)
    weights = trees.subtract(mean.value, trees.scale(gradient_sum, factor))
    updated = ServerState(weights, gradient_sum)
    # Without contributions, the mean is undefined.
    return trees.select(mean.weight > 0, updated, server_state), OrderedDict()

  return update
