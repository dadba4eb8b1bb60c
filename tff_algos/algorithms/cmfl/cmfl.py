"""CMFL: serverless federated learning with a rotating committee of clients.

Che, Li, Chen, He and Zheng, "A Decentralized Federated Learning Framework via
Committee Mechanism with Convergence Guarantee" (TPDS 2022), Algorithm 3.

Round t:
  plan            the committee is that elected in the last round; training
                  clients are sampled from the others; all other clients are
                  idle
  make_message    the global model
  client_work     both roles train locally and upload
  aggregation     every upload is collected, as each member receives all of them
  server_update   computation of every member: distances of the training
                  clients' uploads to the committee's (the inverse of Eq. 8),
                  selection, mean of the selected uploads by examples (Eq. 5),
                  global model <- global model - rate * mean (Eq. 6), election
  plan            the members vote on the proposal (Algorithm 2, the consensus
                  protocol)
  adopt           commits the proposal if the vote accepts it; otherwise model
                  and committee are unchanged

There is no server: the "server state" is the common state of all members.
Members step down after one round.

Names: S_c = committee, S_b = training clients, S_a = selected clients, alpha,
  omega and the strategies: `committee`.
Reductions (tested): selection='all' is FedAvg over the training clients.
Cost per round of n training clients and C members: n + C models down, n C
  models up (each training client sends its upload to each member), C (C - 1) n
  distances among members, n + C solves. Members need single uploads, so CMFL is
  incompatible with secure aggregation.
"""

import dataclasses
import functools
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.cmfl import committee as committee_lib
from tff_algos.algorithms.cmfl import committee_roles, last_gradient
from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.algorithms.cmfl.consensus import round_votes
from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import index_random, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import global_model

_LAST_GRADIENT = 'last_gradient'
UPLOADS = ('update', 'model', _LAST_GRADIENT)


@dataclasses.dataclass(frozen=True)
class CmflConfig:
  """Options of CMFL.

  Attributes:
    upload: Upload of a client: the `'update'`, global model minus local model
      (the paper's gradient, summed over local steps and scaled by their rate),
      or the local `'model'`. The algorithm is the same for honest clients, and
      differs for falsified uploads. `'last_gradient'` is Eq. 5 as printed: the
      mini-batch gradient at the local model after its steps, which the server
      applies to the global model; the steps themselves are dropped.
    server_learning_rate: eta_t over the clients' rate, > 0; 1 replaces the
      global model by the mean of the local ones. eta_t itself for
      `'last_gradient'`.
    rate_offset: gamma of a rate that decays as in Theorem 1: in round t it is
      server_learning_rate * gamma / (gamma + t - 1). 0 for a constant rate.
    loss_scale: Factor of the loss, > 0.
    local_training: Options of local training.
    committee: Sizes of the roles; selection and election.
    consensus: Options of the consensus protocol.
    audit: Content of the audit log (docs/cmfl.md): `'none'`, `'digests'` or
      `'uploads'`; with the latter two, `train` has a metric `record` of the
      members' observations. Changes no result.
  """

  upload: str = 'update'
  server_learning_rate: float = 1.0
  rate_offset: float = 0.0
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  committee: committee_lib.CommitteeConfig = committee_lib.CommitteeConfig()
  consensus: round_votes.ConsensusConfig = round_votes.ConsensusConfig()
  audit: str = audit_log.NONE

  def __post_init__(self):
    checks.check_one_of('upload', self.upload, UPLOADS)
    checks.check_one_of('audit', self.audit, audit_log.LEVELS)
    checks.check_positive('server_learning_rate', self.server_learning_rate)
    checks.check_at_least('rate_offset', self.rate_offset, 0)
    checks.check_positive('loss_scale', self.loss_scale)
    if self.upload == _LAST_GRADIENT:
      last_gradient.check(self.local_training)

  @property
  def steps_at_server(self) -> bool:
    """Returns whether models move by the server's rate, not the clients'."""
    return self.upload == _LAST_GRADIENT

  def rate(self, round_num: int) -> float:
    """Returns the server's rate of a round, from 1."""
    offset = self.rate_offset
    falling = offset / (offset + round_num - 1) if offset else 1.0
    return self.server_learning_rate * falling


class Proposal(NamedTuple):
  """Proposal on which the members vote.

  Attributes:
    model_weights: The global model.
    is_member: The committee of the next round, bool `[num_clients]`; all False
      before round 1, when it is drawn.
    is_selected: Clients whose uploads were averaged, bool `[num_clients]`.
  """

  model_weights: model_lib.Weights
  is_member: tf.Tensor
  is_selected: tf.Tensor


_PROPOSAL = {
  'model_weights': carrying.KEEP,
  # Nobody has elected a client that returns into the committee of today.
  'is_member': carrying.STAYING,
  'is_selected': carrying.STAYING,
}


class ServerState(NamedTuple):
  """Common state of all members of the committee.

  Attributes:
    agreed: The last accepted proposal.
    proposed: The proposal of the last training, to be voted on.
    num_selections: Number of selections of each client, int32 `[num_clients]`.
    num_in_vain: Rounds since the last agreement, int32 `[]`.
    selection_seed: int32 `[2]`; seed of random selection, new in every round.
  """

  agreed: Proposal
  proposed: Proposal
  num_selections: tf.Tensor
  num_in_vain: tf.Tensor
  selection_seed: tf.Tensor


def build_cmfl(
  model: model_lib.Model, config: CmflConfig, run_seed: int | None = None
) -> algorithm.FederatedAlgorithm:
  """Builds CMFL for a model.

  >>> from tff_algos.models import registry
  >>> model = registry.build_model(
  ...   registry.parse_config({'name': 'mlp', 'hidden_sizes': [8]}),
  ...   task='classification',
  ...   input_shape=(4,),
  ...   num_outputs=3,
  ... )
  >>> sorted(build_cmfl(model, CmflConfig()).phases)
  ['adopt', 'train']

  Args:
    model: The model to train.
    config: The options.
    run_seed: Seed of the draw of malicious members, the same in all restarts;
      None for the seed with which a round is planned.
  """

  def init_server_state(seed, num_clients):
    nobody = tf.zeros([num_clients], tf.bool)
    start = Proposal(model.initialize(seed), nobody, nobody)
    return ServerState(
      start,
      start,
      tf.zeros([num_clients], tf.int32),
      tf.constant(0),
      seed,
    )

  def train(message, role, client_state, data, seed):
    objective = objectives.mean_loss(model, config.loss_scale)
    upload, loss = local_training_lib.train(
      objective, message, data, seed, config.local_training
    )
    if config.upload == 'update':
      upload = trees.subtract(message, upload)
    elif config.upload == _LAST_GRADIENT:
      upload = last_gradient.after(
        objective, upload, data, seed, config.local_training
      )
    result = OrderedDict(
      upload=upload,
      num_examples=tf.reduce_sum(data.mask),
      role=role,
    )
    return algorithm.ClientOutput(result, client_state, OrderedDict(loss=loss))

  return global_model.build_algorithm(
    'cmfl',
    model,
    init_server_state=init_server_state,
    phases={
      'train': algorithm.Phase(
        name='train',
        make_message=lambda server_state: server_state.agreed.model_weights,
        client_work=train,
        aggregation={
          field: aggregation.Collect()
          for field in ('upload', 'num_examples', 'role')
        },
        server_update=_build_update(config),
        client_input=committee_roles.SPEC,
        uses_client_state=False,
        # The falsified quantity: a model minus the global one, or an update.
        uploads={
          'upload': lambda message, role, result: (
            message if config.upload == 'model' else trees.zeros_like(message)
          )
        },
      ),
      'adopt': _build_adoption(),
    },
    plan_round=_build_plan(model, config, run_seed),
    carry=carrying.Carry(
      {
        'agreed': _PROPOSAL,
        'proposed': _PROPOSAL,
        'num_selections': carrying.CLIENTS,
        'num_in_vain': carrying.KEEP,
        'selection_seed': carrying.KEEP,
      }
    ),
    global_weights=lambda server_state: server_state.agreed.model_weights,
  )


def _build_update(config):
  """Returns the computation of every member from the received uploads."""

  def update(server_state, aggregates):
    uploads, client_index, is_valid = sent = aggregates['upload']
    old = server_state.agreed.model_weights
    if config.upload == 'model':
      uploads = tf.nest.map_structure(tf.subtract, old, uploads)
    role = aggregates['role'].values
    is_scoring = role.is_member & is_valid
    # Without a valid committee upload, no client is selected or elected.
    is_training = ~role.is_member & is_valid & tf.reduce_any(is_scoring)
    distances = committee_lib.mean_distances(
      uploads, is_scoring, config.committee.distance
    )
    is_selected = committee_lib.select(
      distances,
      is_training,
      # All valid clients report the same value; invalid ones report 0.
      tf.reduce_max(role.num_selected),
      config.committee,
      server_state.selection_seed,
      client_index,
    )
    mean, total = committee_lib.average(
      uploads, aggregates['num_examples'].values, is_selected
    )
    step = trees.scale(mean, tf.reduce_max(role.server_learning_rate))
    elected = committee_lib.elect(
      distances,
      is_training,
      tf.reduce_max(role.committee_size),
      config.committee,
    )
    in_population = functools.partial(
      tf.tensor_scatter_nd_update,
      tf.zeros_like(server_state.agreed.is_member),
      client_index[:, tf.newaxis],
    )
    metrics: OrderedDict[str, Any] = committee_lib.measure(
      distances, is_scoring, is_training, is_selected
    )
    if config.audit != audit_log.NONE:
      examples = aggregates['num_examples'].values
      metrics['record'] = _record(sent, examples, distances)
    return server_state._replace(
      proposed=Proposal(
        trees.select(total > 0, trees.subtract(old, step), old),
        in_population(elected),
        in_population(is_selected),
      ),
      selection_seed=index_random.fold_in(server_state.selection_seed, 1),
    ), metrics

  return update


def _record(sent, num_examples, distances):
  return OrderedDict(
    sent._asdict(), num_examples=num_examples, distances=distances
  )


def _build_adoption():
  """Returns the phase `adopt`: commits the proposal if the vote accepts it.

  The vote is a protocol between members, not a client computation; its outcome
  is the client input of this phase, and is reported in server metrics.
  """

  def report(message, outcome, client_state, data, seed):
    del message, data, seed
    result = OrderedDict(outcome=outcome)
    return algorithm.ClientOutput(result, client_state, OrderedDict())

  def adopt(server_state, aggregates):
    # All members report the same values, none below 0.
    outcome = tf.nest.map_structure(
      lambda values: tf.reduce_max(values, axis=0), aggregates['outcome'].values
    )
    is_accepted = outcome['is_accepted'] > 0
    agreed, proposed = server_state.agreed, server_state.proposed
    adopted = trees.select(is_accepted, proposed, agreed)
    return server_state._replace(
      agreed=adopted,
      # A round in which all clients drop out of training has no proposal.
      proposed=adopted._replace(is_selected=tf.zeros_like(adopted.is_selected)),
      num_selections=server_state.num_selections
      + tf.cast(proposed.is_selected & is_accepted, tf.int32),
      num_in_vain=tf.where(is_accepted, 0, server_state.num_in_vain + 1),
    ), OrderedDict(outcome)

  return algorithm.Phase(
    name='adopt',
    make_message=lambda server_state: (),
    client_work=report,
    aggregation={'outcome': aggregation.Collect()},
    server_update=adopt,
    client_input=OrderedDict(
      (name, tf.TensorSpec([], tf.float32))
      for name in round_votes.Outcome._fields
    ),
    uses_client_state=False,
    # What members miss in a vote is part of the vote.
    has_dropout=False,
  )


def _tell_all(outcome, num_members):
  """Returns the outcome of a vote as the client input of every member."""
  return OrderedDict(
    (name, np.full(num_members, value, np.float32))
    for name, value in outcome._asdict().items()
  )


def _build_plan(model, config, run_seed):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan_round(server_state, population, round_num, seed):
    num_in_vain = int(server_state.num_in_vain)
    cast = committee_roles.assign(
      population,
      server_state.agreed.is_member,
      round_num - num_in_vain,
      round_num,
      seed,
      config.committee,
      config.rate(round_num),
    )
    if not len(cast.active):
      return
    members, num_training = cast.members, len(cast.training)
    sent_up = num_training * len(members) * (num_parameters + 1)
    distances = len(members) * (len(members) - 1) * num_training
    server_state = yield algorithm.PhaseCall(
      'train',
      cast.active,
      cast.roles,
      algorithm.Cost(
        downlink_floats=len(cast.active) * num_parameters,
        uplink_floats=sent_up + distances,
        local_solves=len(cast.active),
      ),
    )
    proposed = server_state.proposed
    outcome = round_votes.vote(
      members,
      round_votes.Round(
        round_num,
        proposed.is_selected,
        proposed.is_member,
        proposed.model_weights,
      ),
      population.client_ids,
      config.consensus,
      seed,
      run_seed,
    )
    if not (outcome.is_accepted or num_in_vain):
      round_votes.warn(round_num, members, outcome)
    yield algorithm.PhaseCall(
      'adopt',
      members,
      _tell_all(outcome, len(members)),
      algorithm.Cost(),
    )

  return plan_round
