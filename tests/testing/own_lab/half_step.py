"""Half step: the global model moves a share of the way to the clients' mean.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    the global model
  client_work     train locally from the global model; upload the result
  aggregation     mean of the clients' models, weighted by examples
  server_update   global model <- global model + step * (mean - global model)

Reductions (tested): step = 1 is FedAvg.
Cost per client and round: downlink P, uplink P floats, one local solve.
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
class HalfStepConfig:
  """Options of the half step.

  Attributes:
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    step: Share of the way, in (0, 1].
    local_training: Options of local training.
  """

  cohort_size: int = 0
  step: float = 0.5
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_positive('step', checks.check_fraction('step', self.step))


class ServerState(NamedTuple):
  """Server state between rounds: the global model."""

  model_weights: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client: its model, and its number of examples."""

  local_weights: model_lib.Weights
  client_weight: tf.Tensor


def build_half_step(model, config):
  """Builds the algorithm for a model."""

  def train(message, client_input, client_state, data, seed):
    del client_input
    weights, loss = local_training_lib.train(
      objectives.mean_loss(model), message, data, seed, config.local_training
    )
    result = TrainResult(weights, tf.reduce_sum(data.mask))
    return algorithm.ClientOutput(result, client_state, OrderedDict(loss=loss))

  def update_model(server_state, aggregates):
    old = server_state.model_weights
    mean = aggregation.mean_or_old(aggregates['local_weights'], old)
    moved = trees.scale(trees.subtract(mean, old), config.step)
    return ServerState(trees.add(old, moved)), OrderedDict()

  num_parameters = trees.num_entries(model.weights_spec())
  return global_model.build_algorithm(
    'half_step',
    model,
    init_server_state=lambda seed, num_clients: ServerState(
      model.initialize(seed)
    ),
    phases={
      'train': algorithm.Phase(
        name='train',
        make_message=lambda server_state: server_state.model_weights,
        client_work=train,
        aggregation={
          'local_weights': aggregation.WeightedMean('client_weight')
        },
        server_update=update_model,
        uses_client_state=False,
        uploads={'local_weights': lambda message, *_: message},
      )
    },
    plan_round=client_sampling.build_uniform_plan(
      config.cohort_size,
      downlink_floats=num_parameters,
      uplink_floats=num_parameters,
    ),
    carry=carrying.Carry({'model_weights': carrying.KEEP}),
  )
