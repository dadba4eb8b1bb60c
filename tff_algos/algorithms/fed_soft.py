"""FedSoft: soft clusters with proximal local updating.

Ruan and Joe-Wong, "FedSoft: Soft Clustered Federated Learning with Proximal
Local Updating" (2021), arXiv:2112.06053, Algorithm 1.

Every client is a mixture of the source distributions of the clusters. It
solves one proximal problem around all cluster models at once, and its one
upload serves every cluster that drew it.

Round t (counted from 1):
  estimate_importance   if (t - 1) % estimation_interval == 0, on all clients:
                        the share of a client's examples that each cluster
                        model fits best, at least `importance_smoother`
  plan                  per cluster, draw `cohort_size_per_cluster` clients with
                        chance ~ importance * examples (Eq. 6)
  client_work           min_w loss(w) + proximal_weight / 2 *
                        sum_s importance_s |w - cluster_model_s|^2 (Eq. 4)
  server_update         cluster model <- mean of the models drawn for it

Names: u = importance_weights, v = selection_probs, K = cohort_size_per_cluster,
  c = cluster_models, w = personalized_weights, tau = estimation_interval,
  sigma = importance_smoother, lambda = proximal_weight, S = num_clusters.
Reductions (tested): one cluster, and one-hot importance = FedProx per cluster;
  proximal_weight 0 = each client alone; K = all clients = the weighted mean
  (Eq. 27).
Cost: an estimation round sends all S models to all clients and gets S + 1
  numbers each; a drawn client then holds them already. Other rounds send S
  models to each drawn client. A drawn client uploads one model.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm, checks, errors, seeds
from tff_algos.core import model as model_lib
from tff_algos.metrics import statistics
from tff_algos.numerics import proximal, trees
from tff_algos.stages import (
  aggregation,
  assignment,
  cohort,
  initialization,
  objectives,
)
from tff_algos.stages import local_training as local_training_lib

SELECTIONS = ('without_replacement', 'with_replacement', 'weighted_full')
STARTS = ('own', 'mixed_center', 'best_center')


@dataclasses.dataclass(frozen=True)
class FedSoftConfig:
  """Options of FedSoft.

  Attributes:
    num_clusters: S, >= 1.
    cohort_size_per_cluster: K, clients drawn per cluster and round, >= 1. If it
      is the whole population, drawing without replacement would make all
      centres equal; the weighted mean of Eq. 27 is taken then.
    estimation_interval: tau, rounds between two estimations, >= 1.
    importance_smoother: sigma, smallest importance, in [0, 1); > 0 for
      `'without_replacement'`, which needs K clients with a chance.
    proximal_weight: lambda, >= 0; 0 trains every client alone.
    selection: `'without_replacement'` (Algorithm 1), `'with_replacement'` (the
      independent slots of the proof, Eq. 38) or `'weighted_full'` (all
      clients, mean weighted by selection probability, Eq. 27).
    start: Where a client's solver starts: `'own'` model of its last round, the
      `'mixed_center'` sum_s u_s c_s / sum_s u_s, or the `'best_center'`, the
      cluster model of largest importance (lowest id on a tie). The paper does
      not say; `'own'` agrees with its remark on lambda = 0.
    loss_scale: Factor on the loss beside the proximal term, > 0; 0.5 makes the
      squared error the half of it.
    local_training: The client's solver.
  """

  num_clusters: int = 2
  cohort_size_per_cluster: int = 10
  estimation_interval: int = 2
  importance_smoother: float = 1e-4
  proximal_weight: float = 0.1
  selection: str = 'without_replacement'
  start: str = 'own'
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_int('num_clusters', self.num_clusters, minimum=1)
    checks.check_int(
      'cohort_size_per_cluster', self.cohort_size_per_cluster, minimum=1
    )
    checks.check_int('estimation_interval', self.estimation_interval, minimum=1)
    checks.check_below_one('importance_smoother', self.importance_smoother)
    checks.check_at_least('proximal_weight', self.proximal_weight, 0)
    checks.check_one_of('selection', self.selection, SELECTIONS)
    checks.check_one_of('start', self.start, STARTS)
    checks.check_positive('loss_scale', self.loss_scale)
    if self.selection == 'without_replacement' and not self.importance_smoother:
      raise errors.ConfigError(
        'importance_smoother must be > 0 for selection without replacement: '
        'with 0, a cluster may have fewer clients with a chance than are drawn'
      )


class ServerState(NamedTuple):
  """What survives a round at the server.

  Attributes:
    cluster_models: c, `[num_clusters, ...]`.
    importance_weights: u, `[num_clients, num_clusters]` float32, in
      [importance_smoother, 1], not renormalised; the smoother before a
      client's first estimation.
  """

  cluster_models: model_lib.Weights
  importance_weights: tf.Tensor


class ClientState(NamedTuple):
  """What survives a round at a client.

  Attributes:
    personalized_weights: w, the model of its last local solve.
    num_updates: Local solves so far, int32 `[]`.
  """

  personalized_weights: model_lib.Weights
  num_updates: tf.Tensor


class TrainInput(NamedTuple):
  """What the server sends to one client besides the cluster models.

  Attributes:
    importance_weights: Its u, `[num_clusters]` float32.
    cluster_weights: What its model weighs in each cluster's mean,
      `[num_clusters]` float32: the slots that it fills, or its v.
  """

  importance_weights: tf.Tensor
  cluster_weights: tf.Tensor


class TrainResult(NamedTuple):
  """What a drawn client uploads, and what it weighs.

  Attributes:
    local_weights: Its model.
    cluster_weights: As in its input, `[num_clusters]`.
  """

  local_weights: model_lib.Weights
  cluster_weights: tf.Tensor


def build_fed_soft(
  model: model_lib.Model, config: FedSoftConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedSoft for a model that all clusters share."""
  return algorithm.FederatedAlgorithm(
    name='fed_soft',
    num_clusters=config.num_clusters,
    init_server_state=_build_init_server_state(model, config),
    init_client_state=lambda run_seed, client_seed: ClientState(
      # One common draw: averages of unrelated networks would mean nothing.
      model.initialize(run_seed),
      tf.constant(0),
    ),
    phases={
      'estimate_importance': _build_estimation(model, config),
      'train': _build_training(model, config),
    },
    plan_round=_build_plan(model, config),
    cluster_model=model,
    cluster_weights=lambda server_state: server_state.cluster_models,
    personalized_model=model,
    personalized_weights=_personalized_weights,
    membership=lambda server_state, client_state, client_index: tf.gather(
      server_state.importance_weights, client_index
    ),
  )


def _build_init_server_state(model, config):
  def init_server_state(seed, num_clients):
    return ServerState(
      initialization.cluster_models(model, config.num_clusters, seed),
      # Not zeros: whose first estimation is refused can still be drawn.
      tf.fill([num_clients, config.num_clusters], config.importance_smoother),
    )

  return init_server_state


def _build_estimation(model, config):
  """Returns the phase of Algorithm 1, lines 3-14."""

  def estimate(cluster_models, client_input, client_state, data, seed):
    del client_input, seed
    losses = assignment.cluster_losses(model, cluster_models, data)
    counts = assignment.best_cluster_counts(losses, data.mask)
    importance = assignment.importance_weights(
      counts, tf.reduce_sum(data.mask), config.importance_smoother
    )
    best = tf.reduce_min(losses, axis=0)
    return algorithm.ClientOutput(
      {'importance_weights': importance},
      client_state,
      OrderedDict(assigned_loss=statistics.masked_mean(best, data.mask)),
    )

  def store_importance(server_state, aggregates):
    fresh = aggregates['importance_weights']
    stale = tf.gather(server_state.importance_weights, fresh.client_index)
    importance = tf.tensor_scatter_nd_update(
      server_state.importance_weights,
      fresh.client_index[:, tf.newaxis],
      trees.select_rows(fresh.is_valid, fresh.values, stale),
    )
    return server_state._replace(importance_weights=importance), OrderedDict()

  return algorithm.Phase(
    name='estimate_importance',
    make_message=lambda server_state: server_state.cluster_models,
    client_work=estimate,
    aggregation={'importance_weights': aggregation.Collect()},
    server_update=store_importance,
    uses_client_state=False,
  )


def _build_training(model, config):
  """Returns the phase of Algorithm 1, lines 17-18."""

  def train(cluster_models, client_input, client_state, data, seed):
    importance = client_input.importance_weights
    center = proximal.mixed_center(importance, cluster_models)
    start = {
      'own': lambda: client_state.personalized_weights,
      'mixed_center': lambda: center,
      'best_center': lambda: trees.take(cluster_models, tf.argmax(importance)),
    }[config.start]()
    objective = objectives.proximal_loss(
      objectives.mean_loss(model, config.loss_scale),
      center,
      config.proximal_weight * tf.reduce_sum(importance),
    )
    weights, loss = local_training_lib.train(
      objective, start, data, seed, config.local_training
    )
    return algorithm.ClientOutput(
      TrainResult(weights, client_input.cluster_weights),
      ClientState(weights, client_state.num_updates + 1),
      OrderedDict(loss=loss),
    )

  def average(server_state, aggregates):
    mean = aggregates['local_weights']
    centers = trees.select_rows(
      mean.weight > 0, mean.value, server_state.cluster_models
    )
    return server_state._replace(cluster_models=centers), OrderedDict(
      num_empty_clusters=tf.reduce_sum(tf.cast(mean.weight <= 0, tf.int32))
    )

  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: server_state.cluster_models,
    client_work=train,
    aggregation={'local_weights': aggregation.ClusterMean('cluster_weights')},
    server_update=average,
    client_input=TrainInput(
      tf.TensorSpec([config.num_clusters], tf.float32),
      tf.TensorSpec([config.num_clusters], tf.float32),
    ),
  )


def _build_plan(model, config):
  num_parameters = trees.num_entries(model.weights_spec())
  per_cluster = config.cohort_size_per_cluster

  def draw(probs, num_available, generator):
    """Returns what each client weighs in each mean, [clients, clusters]."""
    everyone = (
      config.selection == 'without_replacement' and per_cluster == num_available
    )
    if config.selection == 'weighted_full' or everyone:
      return probs.T
    return cohort.draw_per_cluster(
      probs, per_cluster, config.selection == 'with_replacement', generator
    )

  def plan_round(server_state, population, round_num, seed):
    if config.selection == 'without_replacement':
      cohort.check_cohort_size(
        'cohort_size_per_cluster', per_cluster, population
      )
    available = np.flatnonzero(population.num_examples).astype(np.int32)
    models = config.num_clusters * num_parameters
    estimates = (round_num - 1) % config.estimation_interval == 0
    if estimates:
      numbers = len(available) * (config.num_clusters + 1)
      server_state = yield algorithm.PhaseCall(
        'estimate_importance',
        available,
        (),
        algorithm.Cost(len(available) * models, numbers, 0),
      )
    importance = np.asarray(server_state.importance_weights)
    weights = draw(
      cohort.selection_probs(importance, population.num_examples),
      len(available),
      seeds.numpy_generator(seed, 'cohort', round_num),
    )
    drawn = np.flatnonzero(weights.sum(axis=1)).astype(np.int32)
    yield algorithm.PhaseCall(
      'train',
      drawn,
      TrainInput(
        importance[drawn].astype(np.float32), weights[drawn].astype(np.float32)
      ),
      algorithm.Cost(
        downlink_floats=0 if estimates else len(drawn) * models,
        uplink_floats=len(drawn) * num_parameters,
        local_solves=len(drawn),
      ),
    )

  return plan_round


def _personalized_weights(server_state, client_state, client_index):
  """Returns the client's model, or its best centre if it was never drawn."""
  importance = tf.gather(server_state.importance_weights, client_index)
  fallback = trees.take(server_state.cluster_models, tf.argmax(importance))
  return trees.select(
    client_state.num_updates > 0, client_state.personalized_weights, fallback
  )
