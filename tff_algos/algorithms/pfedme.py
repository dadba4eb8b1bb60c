"""pFedMe: personalized models by Moreau envelopes around one global model.

Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes"
(NeurIPS 2020), arXiv:2006.08848, Algorithm 1.

Round t:
  plan            sample `cohort_size` clients uniformly; others may train, too,
                  see `training_clients`
  make_message    the global model
  client_work     R local steps on the Moreau envelope (`moreau_envelope`)
  aggregation     mean of the drawn clients' local models
  server_update   global model <- (1 - beta) global model + beta mean

In a second form, from the code of FedEM (arXiv:2108.10252), theta_i is
averaged: clients take SGD steps with gradient grad f + lambda (theta_i - w)
from their own theta_i, and the server broadcasts w, the mean of all theta_i.
This is averaged 'personalized' with local_training.start 'own',
num_proximal_steps 1 and client_learning_rate 0, so that clients keep w
constant.

Names: w = global model, theta_i = personalized_weights, S = cohort_size,
  beta = server_mixing, lambda = proximal_weight, eta = client_learning_rate,
  R = num_local_steps, K = num_proximal_steps.
Reductions (tested): pFedKM with one cluster is pFedMe, bit for bit; so is a
  cohort of all clients, for any way of sampling it. Of the second form: lambda
  near 0 = each client alone; a large lambda keeps all models near their mean.
Cost per round: a model to every training client, a model from every sampled
  one (and its number of examples, if weighted by it); R solves a training
  client.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, plans
from tff_algos.stages.client import moreau_envelope, objectives
from tff_algos.stages.server import client_sampling, global_model
from tff_algos.stages.server import robust_aggregation as robust

TRAINING_CLIENTS = ('all', 'cohort')
AVERAGED = ('local', 'personalized')


@dataclasses.dataclass(frozen=True)
class PFedMeConfig:
  """Options of pFedMe.

  Attributes:
    cohort_size: S, clients whose models are averaged in a round, >= 0; 0 for
      all that have examples.
    training_clients: Clients that train in a round: `'all'`, as printed, so
      that all personalized models are up to date; or the `'cohort'` alone,
      which gives the same global models for less work, if
      local_training.start is `'received'`.
    weighting: Client weight in the mean: `'uniform'`, all the same, or
      `'examples'`, its number of examples.
    averaged: Uploaded and averaged models: the `'local'` models w, as printed,
      or the `'personalized'` theta_i.
    server_mixing: beta, > 0; above 1 it goes beyond the mean.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of the client work.
    aggregation: Aggregation rule in place of the mean.
  """

  cohort_size: int = 0
  training_clients: str = 'all'
  weighting: str = 'uniform'
  averaged: str = 'local'
  server_mixing: float = 1.0
  loss_scale: float = 1.0
  local_training: moreau_envelope.MoreauEnvelopeConfig = (
    moreau_envelope.MoreauEnvelopeConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_one_of(
      'training_clients', self.training_clients, TRAINING_CLIENTS
    )
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_one_of('averaged', self.averaged, AVERAGED)
    checks.check_positive('server_mixing', self.server_mixing)
    checks.check_positive('loss_scale', self.loss_scale)
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    model_weights: The global model.
  """

  model_weights: model_lib.Weights


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_weights: The local model w, or if theta is averaged, theta.
    client_weight: Weight of the client in the mean, float32 `[]`; 0 if it was
      not sampled.
  """

  local_weights: model_lib.Weights
  client_weight: tf.Tensor


def build_pfedme(
  model: model_lib.Model, config: PFedMeConfig
) -> algorithm.FederatedAlgorithm:
  """Builds pFedMe for a model."""
  built = global_model.build_algorithm(
    'pfedme',
    model,
    init_server_state=robust.checked(
      config.aggregation,
      lambda seed, num_clients: ServerState(model.initialize(seed)),
    ),
    init_client_state=lambda run_seed, client_seed: (
      moreau_envelope.initial_state(model, config.local_training)
    ),
    phases={'train': _build_training(model, config)},
    plan_round=_build_plan(model, config),
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
      }
    ),
    personalized_weights=lambda server_state, client_state, client_index: (
      client_state.serve(server_state.model_weights)
    ),
  )
  return dataclasses.replace(
    built,
    local_weights=moreau_envelope.build_local_weights(
      config.local_training,
      lambda server_state, client_index: server_state.model_weights,
    ),
  )


def _build_training(model, config):
  """Returns the phase; sampled clients contribute."""
  objective = objectives.mean_loss(model, config.loss_scale)

  def train(received, contribution, client_state, data, seed):
    models, client_state, metrics = moreau_envelope.work(
      objective, received, client_state, data, seed, config.local_training
    )
    weight = client_sampling.client_weight(data, config.weighting)
    uploaded = models.local_weights
    if config.averaged == 'personalized':
      uploaded = models.personalized_weights
      del metrics['upload_memory']  # It describes w.
    return algorithm.ClientOutput(
      TrainResult(uploaded, contribution.counts * weight),
      client_state,
      metrics,
    )

  def mix(server_state, aggregates):
    mean, old = aggregates['local_weights'], server_state.model_weights
    mixed = trees.interpolate(old, mean.value, config.server_mixing)
    new = aggregation.mean_or_old(mean._replace(value=mixed), old)
    return ServerState(new), OrderedDict()

  phase = algorithm.Phase(
    name='train',
    make_message=lambda server_state: server_state.model_weights,
    client_work=train,
    aggregation={'local_weights': aggregation.WeightedMean('client_weight')},
    server_update=mix,
    client_input=plans.Contribution(tf.TensorSpec([], tf.float32)),
    uploads={'local_weights': lambda message, *_: message},
  )
  return robust.replace_means(phase, config.aggregation, 'model_weights')


def _build_plan(model, config):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan_round(server_state, population, round_num, seed):
    del server_state
    drawn = client_sampling.draw_cohort(
      population, config.cohort_size, seed, round_num
    )
    training = drawn
    if config.training_clients == 'all':
      training = population.clients_with_examples
    uploaded = num_parameters + (config.weighting == 'examples')
    yield algorithm.PhaseCall(
      'train',
      training,
      plans.Contribution(np.isin(training, drawn).astype(np.float32)),
      algorithm.Cost(
        downlink_floats=len(training) * num_parameters,
        uplink_floats=len(drawn) * uploaded,
        local_solves=len(training) * config.local_training.num_local_steps,
      ),
    )

  return plan_round
