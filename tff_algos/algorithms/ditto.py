"""Ditto and fine-tuning: FedAvg with personalized models near the global one.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through
Personalization" (ICML 2021), arXiv:2012.04221, Algorithm 1. The global model w
is FedAvg's, independent of the personalized models v_k. A client takes steps on

  h_k(v; w) = f_k(v) + proximal_weight / 2 * |v - w|^2.

Round t:
  plan            sample `cohort_size` clients
  personalize     schedule `beside`: the cohort trains v_k, from the present
                  v_k, around the received model w; nothing is uploaded
  train           the cohort trains w as in FedAvg (FedProx with
                  `global_proximal_weight`) and uploads it
  server_update   w <- the mean, or a step towards it (`server_optimizer`)
  personalize     schedule `after`: every `personalization_interval` rounds all
                  clients train v_k around the new w

`fine_tuning` is the same with other defaults: schedule `after`, from w itself,
without the proximal term. With the term, it is the method that Pillutla et al.
(2022) call Ditto.

Names: lambda = proximal_weight, v_k = personalized_weights, mu of FedProx =
  global_proximal_weight.
Reductions (tested): w is that of FedAvg, bit for bit; proximal_weight 0 from
v_k =
  each client alone, from w = fine-tuning; a large one = the global model.
Cost per client and round: P down, P up, two local solves for `beside`; `after`
  sends P to every client that it trains, for one solve.

The model served to a known client is v_k, and before its first training the
global model. New users get the global model; those with examples may fine-tune
it.
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

SCHEDULES = ('beside', 'after')
STARTS = ('own', 'received')


@dataclasses.dataclass(frozen=True)
class DittoConfig:
  """Options of Ditto.

  Attributes:
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    schedule: Time of the training of v_k: `'beside'` the global model, at the
      sampled clients; or `'after'` its update, at all clients.
    start: Starting point of v_k: the client's `'own'` v_k, or the `'received'`
      global model.
    proximal_weight: lambda, >= 0.
    personalization_interval: For schedule `'after'`: rounds between trainings
      of v_k, >= 1; set to the number of rounds for one training at the end. A
      run whose rounds would have none, or that early stopping may end before
      one, is refused; a warning tells of a privacy budget that may.
    global_proximal_weight: mu of FedProx, for the global model, >= 0.
    weighting: Client weight in the mean: `'examples'`, its number of
      examples, or `'uniform'`, all the same.
    server_optimizer: Server optimizer, as in FedAvg.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of the local training of the global model.
    personal_training: Options of the local training of v_k.
    aggregation: Aggregation rule in place of the mean.
  """

  cohort_size: int = 10
  schedule: str = 'beside'
  start: str = 'own'
  proximal_weight: float = 1.0
  personalization_interval: int = 1
  global_proximal_weight: float = 0.0
  weighting: str = 'examples'
  server_optimizer: optimizers.OptimizerConfig = server_optimizer_lib.REPLACE
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  personal_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_int(
      'personalization_interval', self.personalization_interval, minimum=1
    )
    checks.check_one_of('schedule', self.schedule, SCHEDULES)
    checks.check_one_of('start', self.start, STARTS)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    for name in ('proximal_weight', 'global_proximal_weight'):
      checks.check_at_least(name, getattr(self, name), 0)
    checks.check_positive('loss_scale', self.loss_scale)

  @property
  def personalizes_after(self) -> tuple[str, int]:
    """Returns the option of rounds between personalizations, and its value.

    0 if clients personalize in the rounds in which they are drawn.
    """
    rounds = self.personalization_interval if self.schedule == 'after' else 0
    return 'personalization_interval', rounds


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(DittoConfig):
  """Options of fine-tuning: those of Ditto, with other defaults."""

  schedule: str = 'after'
  start: str = 'received'
  proximal_weight: float = 0.0


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: The global model.
    optimizer_slots: Slots of the server optimizer.
  """

  model_weights: model_lib.Weights
  optimizer_slots: Any


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    personalized_weights: v_k.
    num_updates: Rounds in which the client trained v_k, int32 `[]`; before the
      first, the weights are ignored.
  """

  personalized_weights: model_lib.Weights
  num_updates: tf.Tensor

  def serve(self, global_weights: model_lib.Weights) -> model_lib.Weights:
    """Returns v_k, or the global model before its first training."""
    return trees.select(
      self.num_updates > 0, self.personalized_weights, global_weights
    )


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: The global model after its training.
    client_weight: Weight of the client in the mean, float32 `[]`.
  """

  local_weights: model_lib.Weights
  client_weight: tf.Tensor


def build_ditto(
  model: model_lib.Model, config: DittoConfig
) -> algorithm.FederatedAlgorithm:
  """Builds Ditto with full personalization of a model."""

  def init_server_state(seed, num_clients):
    del num_clients
    weights = model.initialize(seed)
    return ServerState(
      weights,
      server_optimizer_lib.initial_slots(weights, config.server_optimizer),
    )

  return global_model.build_algorithm(
    'ditto',
    model,
    init_server_state=robust.checked(config.aggregation, init_server_state),
    init_client_state=lambda run_seed, client_seed: ClientState(
      trees.zeros(model.weights_spec()), tf.constant(0)
    ),
    phases={
      'personalize': _build_personalization(model, config),
      'train': robust.replace_means(
        _build_training(model, config), config.aggregation, 'model_weights'
      ),
    },
    plan_round=_build_plan(model, config),
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
        'optimizer_slots': carrying.OPTIMIZER,
      }
    ),
    personalized_weights=lambda server_state, client_state, client_index: (
      client_state.serve(server_state.model_weights)
    ),
  )


def build_fine_tuning(
  model: model_lib.Model, config: FineTuningConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedAvg with fine-tuning for a model."""
  return dataclasses.replace(build_ditto(model, config), name='fine_tuning')


def _build_personalization(model, config):
  """Returns the phase in which clients train v_k and keep it."""

  def personalize(received, client_input, client_state, data, seed):
    del client_input
    start = client_state.serve(received) if config.start == 'own' else received
    weights, loss = local_training_lib.train(
      _objective(model, received, config.proximal_weight, config),
      start,
      data,
      seed,
      config.personal_training,
    )
    return algorithm.ClientOutput(
      OrderedDict(),
      ClientState(weights, client_state.num_updates + 1),
      OrderedDict(personal_loss=loss),
    )

  return global_model.local_phase('personalize', personalize)


def _build_training(model, config):
  """Returns the phase of the global model, which is FedAvg's."""

  def train(received, client_input, client_state, data, seed):
    del client_input
    weights, loss = local_training_lib.train(
      _objective(model, received, config.global_proximal_weight, config),
      received,
      data,
      seed,
      config.local_training,
    )
    weight = client_sampling.client_weight(data, config.weighting)
    return algorithm.ClientOutput(
      TrainResult(weights, weight), client_state, OrderedDict(loss=loss)
    )

  def update_model(server_state, aggregates):
    return ServerState(
      *server_optimizer_lib.step(
        server_state.model_weights,
        aggregates['local_weights'],
        server_state.optimizer_slots,
        config.server_optimizer,
      )
    ), OrderedDict()

  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: server_state.model_weights,
    client_work=train,
    aggregation={'local_weights': aggregation.WeightedMean('client_weight')},
    server_update=update_model,
    uses_client_state=False,
    uploads={'local_weights': lambda message, *_: message},
  )


def _objective(model, center, proximal_weight, config):
  loss = objectives.mean_loss(model, config.loss_scale)
  if not proximal_weight:
    return loss
  return objectives.ProximalLoss(loss, center, proximal_weight)


def _build_plan(model, config):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan_round(server_state, population, round_num, seed):
    del server_state
    drawn = client_sampling.draw_cohort(
      population, config.cohort_size, seed, round_num
    )
    if config.schedule == 'beside':
      # The centre of their training is the model that `train` broadcasts.
      yield global_model.local_call('personalize', drawn, 0)
    floats = len(drawn) * num_parameters
    yield algorithm.PhaseCall(
      'train', drawn, (), algorithm.Cost(floats, floats, len(drawn))
    )
    is_due = round_num % config.personalization_interval == 0
    if config.schedule == 'after' and is_due:
      yield global_model.local_call(
        'personalize', population.clients_with_examples, num_parameters
      )

  return plan_round
