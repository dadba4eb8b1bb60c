"""Partial personalization: FedAvg of shared weights, private other weights.

Pillutla et al., "Federated Learning with Partial Model Personalization" (ICML
2022), arXiv:2204.03809, FedAlt (Algorithm 2) and FedSim (Algorithm 3). The
choice of private weights and the order of their training give

  method      private (for instance)      schedule
  FedPer      last_layer                  together        arXiv:1912.00818
  LG-FedAvg   all_but_last_layer          together        arXiv:2001.01523
  FedRep      last_layer                  private_first   arXiv:2102.07078
  FedAlt      a layer, block or adapter   private_first
  FedSim      the same                    together
  Local       all                         together

Round t:
  plan            sample `cohort_size` clients
  make_message    the shared weights u
  client_work     together: train u and the client's private weights v_i at
                  once; private_first: train v_i with u frozen, then u with v_i
                    frozen.
                  Keep v_i, upload u
  aggregation     mean of the clients' shared weights
  server_update   u <- the mean, or a step towards it (`server_optimizer`)
  then, every `personalization_interval` rounds, `personalize` on all clients
  with examples: train v_i with the new u frozen

Names: u = shared weights, v_i = private_weights, tau_v = steps of
  private_training, tau_u = steps of local_training.
Reductions (tested): nothing private = FedAvg, bit for bit, as is LG-FedAvg for
  a model of one layer; everything private = each client alone.
Cost per client and round: the shared weights down and up; one local solve, two
  with private_first. `personalize`: the shared weights down, one solve. No
  private weight is in a message or a result. With everything private, 0 floats.

The model served to a known client is u with its v_i, which before its first
round is the initial draw. New users get u with the initial private weights of
the run's seed, which are untrained: they must first be trained on the user's
own examples.
"""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import optimizers
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives, weight_groups
from tff_algos.stages.server import client_sampling, global_model
from tff_algos.stages.server import robust_aggregation as robust
from tff_algos.stages.server import server_optimizer as server_optimizer_lib

SCHEDULES = ('together', 'private_first')
INITIAL_PRIVATE_WEIGHTS = ('common', 'own')


@dataclasses.dataclass(frozen=True)
class PartialFedAvgConfig:
  """Options of partial personalization.

  Attributes:
    private: The private weights, see `weight_groups.weight_names`: names of
      weights, layers or blocks, or `'last_layer'`, `'all_but_last_layer'`,
      `'all'`; empty for none.
    schedule: `'together'` or `'private_first'`.
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    weighting: Client weight in the mean: `'examples'`, its number of
      examples, or `'uniform'`, all the same.
    initial_private_weights: `'common'`, the same for all clients, or `'own'`, a
      draw for each.
    personalization_interval: Rounds between trainings of all clients' private
      weights with the new shared ones, >= 0; 0 for never. Set to the number of
      rounds for one training at the end. A run whose rounds would have none, or
      that early stopping may end before one, is refused; a warning tells of a
      privacy budget that may.
    server_optimizer: Server optimizer, as in FedAvg.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training.
    private_training: Options of the training of v_i alone, in `'private_first'`
      and `personalize`.
    aggregation: Aggregation rule in place of the mean of the shared weights.
  """

  private: tuple[str, ...] = (weight_groups.LAST_LAYER,)
  schedule: str = 'together'
  cohort_size: int = 10
  weighting: str = 'examples'
  initial_private_weights: str = 'common'
  personalization_interval: int = 0
  server_optimizer: optimizers.OptimizerConfig = server_optimizer_lib.REPLACE
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  private_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)
    checks.check_one_of('schedule', self.schedule, SCHEDULES)
    for name in ('cohort_size', 'personalization_interval'):
      checks.check_int(name, getattr(self, name), minimum=0)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_one_of(
      'initial_private_weights',
      self.initial_private_weights,
      INITIAL_PRIVATE_WEIGHTS,
    )
    checks.check_positive('loss_scale', self.loss_scale)

  @property
  def personalizes_after(self) -> tuple[str, int]:
    """Returns the option of rounds between personalizations, and its value."""
    return 'personalization_interval', self.personalization_interval


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    shared_weights: u.
    initial_private_weights: Initial draw of the run's seed, for new users;
      never sent or changed.
    optimizer_slots: Slots of the server optimizer.
  """

  shared_weights: model_lib.Weights
  initial_private_weights: model_lib.Weights
  optimizer_slots: Any


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    private_weights: v_i.
  """

  private_weights: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    shared_weights: u after its training.
    client_weight: Weight of the client in the mean, float32 `[]`.
  """

  shared_weights: model_lib.Weights
  client_weight: tf.Tensor


def build_partial_fed_avg(
  model: model_lib.Model, config: PartialFedAvgConfig
) -> algorithm.FederatedAlgorithm:
  """Builds partial personalization of a model.

  Raises:
    ConfigError: If the model has no weights of a name in `private`, or
      `personalize` has no private weights to train.
  """
  groups = weight_groups.WeightGroups(model, config.private)
  phases = {
    'train': robust.replace_means(
      _build_training(groups, config), config.aggregation, 'shared_weights'
    )
  }
  if config.personalization_interval:
    if not groups.private:
      raise errors.ConfigError(
        f'personalization_interval is {config.personalization_interval}, but '
        f'model {model.name!r} has no private weights to train '
        'then; name weights in private, or set personalization_interval to 0'
      )
    phases['personalize'] = _build_personalization(groups, config)

  def init_server_state(seed, num_clients):
    del num_clients
    parts = groups.split(model.initialize(seed))
    slots = server_optimizer_lib.initial_slots(
      parts.shared, config.server_optimizer
    )
    return ServerState(*parts, slots)

  def init_client_state(run_seed, client_seed):
    is_common = config.initial_private_weights == 'common'
    weights = model.initialize(run_seed if is_common else client_seed)
    return ClientState(groups.split(weights).private)

  return global_model.build_algorithm(
    'partial_fed_avg',
    model,
    init_server_state=robust.checked(config.aggregation, init_server_state),
    init_client_state=init_client_state,
    phases=phases,
    plan_round=_build_plan(groups, config),
    carry=carrying.Carry(
      {
        'shared_weights': carrying.KEEP,
        'initial_private_weights': carrying.KEEP,
        'optimizer_slots': carrying.OPTIMIZER,
      }
    ),
    global_weights=lambda server_state: groups.join(
      server_state.shared_weights, server_state.initial_private_weights
    ),
    personalized_weights=lambda server_state, client_state, client_index: (
      groups.join(server_state.shared_weights, client_state.private_weights)
    ),
  )


def _build_training(groups, config):
  """Returns the phase of a client's round."""
  learn = {
    'together': _train_together,
    'private_first': _train_private_first,
  }[config.schedule]

  def train(shared, client_input, client_state, data, seed):
    del client_input
    parts, metrics = learn(
      groups,
      weight_groups.Parts(shared, client_state.private_weights),
      data,
      seed,
      config,
    )
    weight = client_sampling.client_weight(data, config.weighting)
    return algorithm.ClientOutput(
      TrainResult(parts.shared, weight), ClientState(parts.private), metrics
    )

  def update_shared(server_state, aggregates):
    shared, slots = server_optimizer_lib.step(
      server_state.shared_weights,
      aggregates['shared_weights'],
      server_state.optimizer_slots,
      config.server_optimizer,
    )
    return server_state._replace(
      shared_weights=shared, optimizer_slots=slots
    ), OrderedDict()

  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: server_state.shared_weights,
    client_work=train,
    aggregation={'shared_weights': aggregation.WeightedMean('client_weight')},
    server_update=update_shared,
    uploads={'shared_weights': lambda message, *_: message},
  )


def _build_personalization(groups, config):
  """Returns the phase in which clients train their private weights alone."""

  def personalize(shared, client_input, client_state, data, seed):
    del client_input
    private, loss = _train_private(
      groups, shared, client_state.private_weights, data, seed, config
    )
    return algorithm.ClientOutput(
      OrderedDict(), ClientState(private), OrderedDict(private_loss=loss)
    )

  return global_model.local_phase(
    'personalize', personalize, lambda server_state: server_state.shared_weights
  )


def _train_together(groups, parts, data, seed, config):
  weights, loss = local_training_lib.train(
    objectives.mean_loss(groups.model, config.loss_scale),
    groups.join(*parts),
    data,
    seed,
    config.local_training,
  )
  return groups.split(weights), OrderedDict(loss=loss)


def _train_private_first(groups, parts, data, seed, config):
  # Each part is trained on its own order of the examples.
  private, private_loss = _train_private(
    groups, parts.shared, parts.private, data, seed + 1, config
  )
  loss_of = objectives.mean_loss(groups.model, config.loss_scale)
  shared, loss = local_training_lib.train(
    lambda shared, batch: loss_of(groups.join(shared, private), batch),
    parts.shared,
    data,
    seed,
    config.local_training,
  )
  return weight_groups.Parts(shared, private), OrderedDict(
    loss=loss, private_loss=private_loss
  )


def _train_private(groups, shared, private, data, seed, config):
  loss_of = objectives.mean_loss(groups.model, config.loss_scale)
  return local_training_lib.train(
    lambda private, batch: loss_of(groups.join(shared, private), batch),
    private,
    data,
    seed,
    config.private_training,
  )


def _build_plan(groups, config):
  train = client_sampling.build_uniform_plan(
    config.cohort_size,
    downlink_floats=groups.num_shared,
    uplink_floats=groups.num_shared,
    local_solves=1 + (config.schedule == 'private_first'),
  )

  def plan_round(server_state, population, round_num, seed):
    yield from train(server_state, population, round_num, seed)
    interval = config.personalization_interval
    if interval and round_num % interval == 0:
      yield global_model.local_call(
        'personalize', population.clients_with_examples, groups.num_shared
      )

  return plan_round
