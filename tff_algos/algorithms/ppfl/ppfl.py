"""PPFL: personalized mixtures of canonical models by client memberships.

Di, Yang, Ye and Chang, "PPFL: A Personalized Federated Learning Framework for
Heterogeneous Population" (2023), arXiv:2310.14337. It minimises, over weights
theta and memberships c_i on the simplex,

  sum_i p_i f_i(theta, c_i) + lambda / 2 sum_ij w_ij |c_i - c_j|^2.

Round t; before the first, with lambda > 0, clients upload label counts:
  alternating     Algorithm 3. Each client receives theta and its penalty's
                  gradient g_i = 2 lambda (L C)_i, and in one phase, `joint`,
                  takes a mirror step on c_i (`membership_descent`), then local
                  steps on theta with the new c_i; theta <- the mean, or a step
                  towards it (`server_optimizer`)
  random_block    Algorithms 1 and 2. The plan draws a block. `shared`: local
                  steps on theta; theta <- the mean. `membership`: clients
                  upload p_i grad_c f_i; the server takes the mirror steps
  shared_first    the authors' release: `shared`, then `membership` with the new
                  theta, its mirror steps at the client

Names: theta = model_weights, of which theta_com = shared and theta_k =
  canonical (`mixing`); K = num_clusters, C = membership, W = affinity, lambda =
  laplacian.weight, p_i = client_weight, E = local steps, eta_1, eta_2 =
  learning rates, rho_1 = shared_prob.
Reductions (tested): one cluster = FedAvg, up to rounding; lambda = 0 = partial
  personalization of c_i; equal canonical models stay equal.
Cost per client, P = |theta|: `joint` P + K down and up; random_block P or K
  each way; `shared_first` P + K each way. In the last two, a client of a
  sampled cohort is sent theta once more before its membership step: P more
  down. With lambda = 0 memberships stay at the clients, which saves the K
  floats, except in random_block, whose server updates the memberships.

Alternating keeps c_i in the client's state; the server's table C holds the last
uploads, so the Laplacian of a partial cohort uses stale memberships. A client
that takes no part keeps c_i.
"""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.algorithms.ppfl import (
  affinity,
  membership_descent,
  membership_exchange,
  mixed_training,
  mixing,
  stationarity,
)
from tff_algos.core import algorithm, carrying, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import optimizers, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import weight_groups
from tff_algos.stages.server import client_sampling
from tff_algos.stages.server import robust_aggregation as robust
from tff_algos.stages.server import server_optimizer as server_optimizer_lib

# The upload that a Byzantine client falsifies: the model, started from theta.
_TRAINED = {'local_weights': lambda message, *_: message}


@dataclasses.dataclass(frozen=True)
class PpflConfig:
  """Options of PPFL.

  Attributes:
    num_clusters: K, number of canonical models, >= 1.
    schedule: `'alternating'`, `'random_block'` or `'shared_first'`.
    cohort_size: Clients sampled a round; 0 for all, as printed.
    canonical: The canonical weights, see `weight_groups.weight_names`: names of
      weights or layers, `'all'` or `'last_layer'`; the rest is shared.
    mixing: `'outputs'` (PPFL1), `'parameters'` (PPFL2) or `'probabilities'`
      (Eq. 11).
    weighting: p_i, which is also the client weight in the mean: `'examples'` or
      `'uniform'`.
    shared_prob: rho_1, probability of the block theta in `'random_block'`, in
      [0, 1].
    membership: Options of the membership updates.
    laplacian: The penalty.
    num_joint_rounds: If > 0, rounds after this many update memberships alone.
    stationarity_interval: Rounds between measurements of the objective and its
      stationarity, at their start; 0 for none. Each costs every client a pass
      over all of its examples, the download of P floats where it does not hold
      theta, and of K with a penalty, and an upload of P + 2.
    server_optimizer: Server optimizer of theta, as in FedAvg; SGD with learning
      rate 1 and no momentum takes the mean.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of the local training of theta; the optimizer state
      may be kept, but not in `'random_block'`.
    aggregation: Aggregation rule in place of the mean of the clients' theta.
  """

  num_clusters: int = 2
  schedule: str = membership_exchange.ALTERNATING
  cohort_size: int = 0
  canonical: tuple[str, ...] = (weight_groups.ALL,)
  mixing: str = 'outputs'
  weighting: str = 'examples'
  shared_prob: float = 0.5
  membership: membership_descent.MembershipConfig = (
    membership_descent.MembershipConfig()
  )
  laplacian: affinity.LaplacianConfig = affinity.LaplacianConfig()
  num_joint_rounds: int = 0
  stationarity_interval: int = 0
  server_optimizer: optimizers.OptimizerConfig = server_optimizer_lib.REPLACE
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('num_clusters', self.num_clusters, minimum=1)
    for name in ('cohort_size', 'num_joint_rounds', 'stationarity_interval'):
      checks.check_int(name, getattr(self, name), minimum=0)
    checks.check_one_of('mixing', self.mixing, mixing.MIXINGS)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_fraction('shared_prob', self.shared_prob)
    checks.check_positive('loss_scale', self.loss_scale)
    self.membership.check_mixing(self.mixing)
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)
    membership_exchange.check_schedule(self.schedule, self.membership)
    is_kept = self.local_training.keeps_optimizer_state
    if is_kept and self.schedule == membership_exchange.RANDOM_BLOCK:
      raise errors.ConfigError(
        'local_training.keeps_optimizer_state is True, but in the schedule '
        f'{self.schedule!r} clients keep nothing; set it to False, or take '
        'another schedule'
      )


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: theta: `shared` weights and `canonical` ones,
      `[num_clusters, ...]`.
    membership: C, `[num_clients, num_clusters]` float32; `()` if memberships
      stay at the clients.
    affinity_features: Affinity vectors of `affinity`; `()` without a penalty.
    is_counted: Whether a client has uploaded its label counts, bool
      `[num_clients]`; `()` if no counts are needed.
    optimizer_slots: Slots of the server optimizer.
  """

  model_weights: Any
  membership: Any
  affinity_features: Any
  is_counted: Any = ()
  optimizer_slots: Any = ()


class ClientState(NamedTuple):
  """Client state between rounds; `()` if the server has the memberships.

  Attributes:
    membership: c_i, `[num_clusters]` float32, on the simplex; equal shares
      before its first round.
    slots: Optimizer state of theta, if it is kept.
  """

  membership: tf.Tensor
  slots: Any = ()


def build_ppfl(
  model: model_lib.Model, config: PpflConfig
) -> algorithm.FederatedAlgorithm:
  """Builds PPFL.

  >>> from tff_algos.models import registry
  >>> model = registry.build_model(
  ...   registry.parse_config({'name': 'mlp', 'hidden_sizes': [8]}),
  ...   task='classification',
  ...   input_shape=(4,),
  ...   num_outputs=3,
  ... )
  >>> ppfl = build_ppfl(model, PpflConfig(num_clusters=2))
  >>> ppfl.num_clusters
  2

  Raises:
    ConfigError: If the model has no canonical weights of the configured names,
      or the affinity needs label counts and labels are not classes.
  """
  mixture = mixing.build(
    model, config.num_clusters, config.canonical, config.mixing
  )
  exchange = membership_exchange.MembershipExchange(
    mixture,
    config.schedule,
    config.cohort_size > 0,
    config.num_joint_rounds,
    config.membership,
    config.laplacian,
  )

  def init_server_state(seed, num_clients):
    keeps_table = exchange.at_server or exchange.uploads_membership
    weights = mixture.initialize(seed)
    return ServerState(
      weights,
      trees.repeat(mixture.equal_shares(), num_clients) if keeps_table else (),
      affinity.initial_features(config.laplacian, model, num_clients),
      tf.zeros([num_clients], tf.bool) if config.laplacian.needs_counts else (),
      server_optimizer_lib.initial_slots(weights, config.server_optimizer),
    )

  def membership_of(server_state, client_state, client_index):
    if exchange.at_server:
      return tf.gather(server_state.membership, client_index)
    return client_state.membership

  return algorithm.FederatedAlgorithm(
    name='ppfl',
    num_clusters=config.num_clusters,
    init_server_state=robust.checked(config.aggregation, init_server_state),
    init_client_state=lambda run_seed, client_seed: (
      ()
      if exchange.at_server
      else ClientState(
        mixture.equal_shares(),
        local_training_lib.initial_slots(
          mixture.initialize(run_seed), config.local_training
        ),
      )
    ),
    phases=_build_phases(exchange, config),
    plan_round=_build_plan(exchange, config),
    cluster_model=model,
    cluster_weights=lambda server_state: mixture.stack(
      server_state.model_weights
    ),
    personalized_model=mixture.personalized_model(),
    personalized_weights=lambda server_state, client_state, client_index: (
      mixture.personalize(
        server_state.model_weights,
        membership_of(server_state, client_state, client_index),
      )
    ),
    membership=membership_of,
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
        'membership': carrying.CLIENTS,
        'affinity_features': carrying.CLIENTS,
        'is_counted': carrying.CLIENTS,
        'optimizer_slots': carrying.OPTIMIZER,
      }
    ),
    newcomers=membership_descent.newcomers(
      mixture, config.membership, config.loss_scale
    ),
  )


def _build_phases(exchange, config):
  names = [*membership_exchange.PHASES[config.schedule]]
  if config.num_joint_rounds and 'membership' not in names:
    names.append('membership')
  phases = [
    membership_exchange.build_server_step(exchange, config.loss_scale)
    if name == 'membership' and exchange.at_server
    else _build_client_phase(exchange, config, name)
    for name in names
  ]
  if config.laplacian.needs_counts:
    model = exchange.mixture.model
    phases.append(affinity.build_counting(model, config.laplacian))
  if config.stationarity_interval:
    phases.append(stationarity.build_measurement(exchange, config.loss_scale))
  return {phase.name: phase for phase in phases}


def _build_client_phase(exchange, config, name):
  """Returns the phase in which clients update c_i, or theta, or both."""
  mixture = exchange.mixture
  moves_weights = name in ('joint', 'shared')
  moves_membership = name in ('joint', 'membership')
  uploads = moves_membership and exchange.uploads_membership

  def work(model_weights, client_input, client_state, data, seed):
    membership = exchange.membership_of(client_input, client_state)
    told = dict(client_input)
    result, metrics = OrderedDict(), OrderedDict()
    if moves_membership:
      membership, metrics['membership_loss'] = membership_descent.descend(
        mixture,
        model_weights,
        membership,
        data,
        seed + 1,
        config.membership,
        loss_scale=config.loss_scale,
        **told,
      )
      client_state = client_state._replace(membership=membership)
    if moves_weights:
      keeps = config.local_training.keeps_optimizer_state
      result['local_weights'], slots, metrics['loss'] = mixed_training.train(
        mixture,
        model_weights,
        membership,
        client_state.slots if keeps else (),
        data,
        seed,
        config.local_training,
        loss_scale=config.loss_scale,
      )
      result['client_weight'] = client_sampling.client_weight(
        data, config.weighting
      )
      if keeps:
        client_state = client_state._replace(slots=slots)
    if uploads:
      result['membership'] = membership
    return algorithm.ClientOutput(result, client_state, metrics)

  def update(server_state, aggregates):
    new = {}
    if moves_weights:
      new['model_weights'], new['optimizer_slots'] = (
        server_optimizer_lib.replace_or_step(
          server_state.model_weights,
          aggregates['local_weights'],
          server_state.optimizer_slots,
          config.server_optimizer,
        )
      )
    if uploads:
      new['membership'] = aggregation.write_rows(
        server_state.membership, aggregates['membership']
      )
    return server_state._replace(**new), OrderedDict()

  aggregators = {}
  if moves_weights:
    aggregators['local_weights'] = aggregation.WeightedMean('client_weight')
  if uploads:
    aggregators['membership'] = aggregation.Collect()
  phase = algorithm.Phase(
    name=name,
    make_message=lambda server_state: server_state.model_weights,
    client_work=work,
    aggregation=aggregators,
    server_update=update,
    client_input=exchange.client_input(name),
    uses_client_state=not exchange.at_server,
    uploads=_TRAINED if moves_weights else {},
  )
  return robust.replace_means(phase, config.aggregation, 'model_weights')


def _build_plan(exchange, config):
  def plan_round(server_state, population, round_num, seed):
    drawn = client_sampling.draw_cohort(
      population, config.cohort_size, seed, round_num
    )
    weights = client_sampling.population_shares(population, config.weighting)
    uncounted = affinity.uncounted(server_state.is_counted, population)
    if len(uncounted):
      server_state = yield exchange.call(
        'count_labels', server_state, uncounted, weights, round_num
      )
    for phase in exchange.phases(
      round_num, seed, config.shared_prob, config.stationarity_interval
    ):
      who = exchange.cohort(phase, drawn, population)
      server_state = yield exchange.call(
        phase, server_state, who, weights, round_num
      )

  return plan_round
