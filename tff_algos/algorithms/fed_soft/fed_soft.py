"""FedSoft: soft clustered federated learning with proximal local updating.

Ruan and Joe-Wong, "FedSoft: Soft Clustered Federated Learning with Proximal
Local Updating" (2021), arXiv:2112.06053, Algorithm 1.

Every client's data are a mixture of the clusters' source distributions. A
client solves one proximal problem around all cluster models at once, and its
single upload is averaged into every cluster that sampled it.

Round t (counted from 1):
  estimate_importance   if (t - 1) % estimation_interval == 0, on all clients:
                        the share of a client's examples that each cluster
                        model fits best, at least `importance_smoother`. In
                        other rounds on clients without an estimate, such as
                        newcomers of a continued run
  plan                  per cluster, sample `cohort_size_per_cluster` clients
                        with probability ~ importance * examples (Eq. 6)
  client_work           min_w loss(w) + proximal_weight / 2 *
                        sum_s importance_s |w - cluster_model_s|^2 (Eq. 4)
  server_update         cluster model <- mean of its sampled clients' models;
                        by Eq. 27, the weight of clients that drop out stays at
                        the cluster model

Names: u = importance_weights, v = selection_probs, K = cohort_size_per_cluster,
  c = cluster_models, w = personalized_weights, tau = estimation_interval,
  sigma = importance_smoother, lambda = proximal_weight, S = num_clusters.
Reductions (tested): one cluster, and one-hot importance = FedProx per cluster;
  proximal_weight 0 = each client alone; K = all clients = the weighted mean
  (Eq. 27); fixed importance and exact solutions = block-coordinate descent
  (Theorem 5).
Cost: an estimation round sends all S models to all clients, each of which
  uploads S + 1 numbers; a sampled client then holds the models already. Other
  rounds send S models to each sampled client, or one (`download`). A sampled
  client uploads one model.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.fed_soft import center_download as download_lib
from tff_algos.algorithms.fed_soft import client_selection
from tff_algos.algorithms.fed_soft import importance as importance_lib
from tff_algos.core import algorithm, carrying, checks, errors, seeds
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.clusters import initialization
from tff_algos.stages.server import client_sampling
from tff_algos.stages.server import robust_aggregation as robust

STARTS = ('own', 'mixed_center', 'best_center')
INITIAL_LOCAL_MODELS = ('common', 'independent')


@dataclasses.dataclass(frozen=True)
class FedSoftConfig:
  """Options of FedSoft.

  Attributes:
    num_clusters: S, >= 1.
    cohort_size_per_cluster: K, clients sampled per cluster and round, >= 1. If
      K is the number of clients with examples, sampling without replacement
      would make all centres equal; then the weighted mean of Eq. 27 is used.
      Ignored by `'weighted_full'`.
    estimation_interval: tau, rounds between two estimations, >= 1.
    importance_smoother: sigma, smallest importance, in [0, 1); > 0 in float32
      for `'without_replacement'`, which needs K clients of positive
      probability.
    proximal_weight: lambda, >= 0; 0 trains every client alone.
    selection: `'without_replacement'` (Algorithm 1), `'with_replacement'` (the
      independent slots of the proof, Eq. 38) or `'weighted_full'` (all
      clients, mean weighted by selection probability, Eq. 27).
    start: Starting point of the solver: the client's `'own'` last model, the
      `'mixed_center'` sum_s u_s c_s / sum_s u_s, or the `'best_center'`, the
      cluster model of largest importance (lowest id on a tie). The paper does
      not specify it; `'own'` agrees with its remark on lambda = 0.
    loss_scale: Factor on the loss beside the proximal term, > 0; 0.5 gives half
      the squared error.
    local_training: The client's solver.
    download: Download of a sampled client that does not hold the cluster models
      from an estimation: `'all_centers'`, or their `'mixed_center'` and
      sum_s u_s, which determine its objective. The server then computes one
      model for each sampled client, all at once: cohort times model size in
      memory (84 letters networks of 6.4 MiB: 0.5 GiB). Results are the same.
    initial_local_models: Initial models of the clients: one `'common'` draw, or
      `'independent'` draws, whose mean is of little use.
    fixed_importance: u, one row a client and one weight a cluster, in the order
      of the population, without estimation (Theorem 5, whose Eq. 49 is the
      weighted mean of clients with equally many examples). A run with it is
      continued only on as many clients. Empty to estimate u.
    aggregation: Aggregation rule in place of each cluster's mean.
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
  download: str = 'all_centers'
  initial_local_models: str = 'common'
  fixed_importance: tuple[tuple[float, ...], ...] = ()
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('num_clusters', self.num_clusters, minimum=1)
    checks.check_int(
      'cohort_size_per_cluster', self.cohort_size_per_cluster, minimum=1
    )
    checks.check_int('estimation_interval', self.estimation_interval, minimum=1)
    checks.check_below_one('importance_smoother', self.importance_smoother)
    checks.check_at_least('proximal_weight', self.proximal_weight, 0)
    checks.check_one_of(
      'selection', self.selection, client_selection.SELECTIONS
    )
    if self.selection != 'weighted_full':
      self.aggregation.check_cohort_size(
        'cohort_size_per_cluster', self.cohort_size_per_cluster
      )
    checks.check_one_of('start', self.start, STARTS)
    checks.check_positive('loss_scale', self.loss_scale)
    checks.check_one_of('download', self.download, download_lib.DOWNLOADS)
    checks.check_one_of(
      'initial_local_models', self.initial_local_models, INITIAL_LOCAL_MODELS
    )
    if self.download == 'mixed_center' and self.start == 'best_center':
      raise errors.ConfigError(
        "start 'best_center' needs a cluster model, but download "
        "'mixed_center' sends none; use download 'all_centers'"
      )
    if self.fixed_importance and self.selection != 'weighted_full':
      raise errors.ConfigError(
        "fixed_importance is for selection 'weighted_full' (Theorem 5), got "
        f'{self.selection!r}'
      )
    has_chance = np.float32(self.importance_smoother) > 0
    if self.selection == 'without_replacement' and not has_chance:
      raise errors.ConfigError(
        'importance_smoother must be > 0 for selection without replacement, in '
        f'float32, too, got {self.importance_smoother}: with 0, a cluster may '
        'have fewer clients with a chance than are drawn'
      )


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    cluster_models: c, `[num_clusters, ...]`.
    importance_weights: u, `[num_clients, num_clusters]` float32, in
      [importance_smoother, 1], not renormalised; the smoother before a
      client's first estimation. With `fixed_importance` the true shares.
  """

  cluster_models: model_lib.Weights
  importance_weights: tf.Tensor


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    personalized_weights: w, the model of its last local solve.
    num_updates: Local solves so far, int32 `[]`.
  """

  personalized_weights: model_lib.Weights
  num_updates: tf.Tensor


class TrainResult(NamedTuple):
  """Upload of a sampled client and its weights in the means.

  Attributes:
    local_weights: The client's model.
    cluster_weights: As in the client input, `[num_clusters]`.
  """

  local_weights: model_lib.Weights
  cluster_weights: tf.Tensor


def build_fed_soft(
  model: model_lib.Model, config: FedSoftConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedSoft for a model common to all clusters.

  >>> from tff_algos.models import registry
  >>> model = registry.build_model(
  ...   registry.parse_config({'name': 'mlp', 'hidden_sizes': [8]}),
  ...   task='classification',
  ...   input_shape=(4,),
  ...   num_outputs=3,
  ... )
  >>> fed_soft = build_fed_soft(model, FedSoftConfig(num_clusters=2))
  >>> sorted(fed_soft.phases)
  ['estimate_importance', 'train']
  >>> state = fed_soft.init_server_state(tf.constant([0, 1]), num_clients=5)
  >>> state.importance_weights.shape
  TensorShape([5, 2])

  Raises:
    ConfigError: If cluster models start equal and `selection` is
      `'weighted_full'` without `fixed_importance`, so that they stay equal;
      from the plan of round 1, if K is the number of clients with examples.
      From the initial server state, if `fixed_importance` does not fit the
      population.
  """
  if config.selection == 'weighted_full' and not config.fixed_importance:
    # Cohorts separate equal models, which fit every example alike.
    initialization.check_differ(
      model, config.num_clusters, "set selection to 'without_replacement'"
    )
  phases = {'train': _build_training(model, config)}
  if not config.fixed_importance:
    phases['estimate_importance'] = importance_lib.build_estimation(
      model, config.importance_smoother
    )
  common = config.initial_local_models == 'common'
  return algorithm.FederatedAlgorithm(
    name='fed_soft',
    num_clusters=config.num_clusters,
    init_server_state=robust.checked(
      config.aggregation, _build_init_server_state(model, config)
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(
      model.initialize(run_seed if common else client_seed), tf.constant(0)
    ),
    phases=phases,
    plan_round=_build_plan(model, config),
    cluster_model=model,
    cluster_weights=lambda server_state: server_state.cluster_models,
    personalized_model=model,
    personalized_weights=_personalized_weights,
    membership=lambda server_state, client_state, client_index: tf.gather(
      server_state.importance_weights, client_index
    ),
    carry=carrying.Carry(
      {
        'cluster_models': carrying.KEEP,
        'importance_weights': carrying.INITIAL
        if config.fixed_importance
        else carrying.CLIENTS,
      }
    ),
  )


def _build_init_server_state(model, config):
  def init_server_state(seed, num_clients):
    shape = (num_clients, config.num_clusters)
    # Not zeros: a client whose first estimation is invalid can be sampled.
    importance = tf.fill(shape, config.importance_smoother)
    if config.fixed_importance:
      importance = tf.constant(
        importance_lib.fixed_weights(config.fixed_importance, *shape)
      )
    models = initialization.cluster_models(model, config.num_clusters, seed)
    return ServerState(models, importance)

  return init_server_state


def _build_training(model, config):
  """Returns the phase of Algorithm 1, lines 17-18."""
  sends_all = config.download == 'all_centers'

  def origin(cluster_models, client_input, pull):
    """Returns the model that an update is counted from."""
    if config.start == 'best_center':
      best = tf.argmax(client_input.importance_weights)
      return trees.take(cluster_models, best)
    # The client's own last model is in no message.
    return pull.center

  def train(cluster_models, client_input, client_state, data, seed):
    pull = client_input.joint_pull(cluster_models)
    start = (
      client_state.personalized_weights
      if config.start == 'own'
      else origin(cluster_models, client_input, pull)
    )
    objective = objectives.mean_loss(model, config.loss_scale)
    if config.proximal_weight:
      objective = objectives.ProximalLoss(
        objective, pull.center, config.proximal_weight * pull.strength
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
    old, mean = server_state.cluster_models, aggregates['local_weights']
    # Weights of Eq. 27 sum to 1 over all clients; slots are whole numbers.
    arrived = tf.minimum(mean.weight, 1.0)
    moved = trees.add(
      trees.scale_rows(old, 1.0 - arrived),
      trees.scale_rows(mean.value, arrived),
    )
    models, metrics = aggregation.replace_clusters(
      mean._replace(value=moved), old
    )
    return server_state._replace(cluster_models=models), metrics

  phase = algorithm.Phase(
    name='train',
    make_message=lambda server_state: (
      server_state.cluster_models if sends_all else ()
    ),
    client_work=train,
    aggregation={'local_weights': aggregation.ClusterMean('cluster_weights')},
    server_update=average,
    client_input=download_lib.input_spec(
      config.download, model, config.num_clusters
    ),
    uploads={
      'local_weights': lambda message, given, _: origin(
        message, given, given.joint_pull(message)
      )
    },
  )
  return robust.replace_means(phase, config.aggregation, 'cluster_models')


def _build_plan(model, config):
  num_parameters = trees.num_entries(model.weights_spec())
  models = config.num_clusters * num_parameters
  per_cluster = config.cohort_size_per_cluster
  sends_all = config.download == 'all_centers'

  def plan_round(server_state, population, round_num, seed):
    if config.selection == 'without_replacement':
      client_sampling.check_cohort_size(
        'cohort_size_per_cluster', per_cluster, population
      )
      everyone = np.count_nonzero(population.num_examples)
      if round_num == 1 and per_cluster == everyone:
        initialization.check_differ(
          model, config.num_clusters, 'lower cohort_size_per_cluster'
        )
    available = population.clients_with_examples
    asked = available
    if config.fixed_importance:
      asked = available[:0]
    elif (round_num - 1) % config.estimation_interval:
      asked = importance_lib.without_estimate(
        server_state.importance_weights, available, config.importance_smoother
      )
    if len(asked):
      numbers = len(asked) * (config.num_clusters + 1)
      server_state = yield algorithm.PhaseCall(
        'estimate_importance',
        asked,
        (),
        algorithm.Cost(len(asked) * models, numbers, 0),
      )
    weights = client_selection.draw_shares(
      server_state.importance_weights,
      population,
      config.selection,
      per_cluster,
      seeds.numpy_generator(seed, 'cohort', round_num),
    ).astype(np.float32)
    drawn = np.flatnonzero(weights.sum(axis=1)).astype(np.int32)
    if 0 < len(drawn) == len(available):
      _check_clusters_differ(weights[drawn], config)
    importance = np.asarray(server_state.importance_weights)[drawn]
    inputs = download_lib.inputs(
      config.download, server_state.cluster_models, importance, weights[drawn]
    )
    download = models if sends_all else num_parameters + 1
    num_downloads = len(np.setdiff1d(drawn, asked))
    yield algorithm.PhaseCall(
      'train',
      drawn,
      inputs,
      algorithm.Cost(
        downlink_floats=num_downloads * download,
        uplink_floats=len(drawn) * num_parameters,
        local_solves=len(drawn),
      ),
    )

  return plan_round


def _check_clusters_differ(weights, config):
  """Checks that clusters differ where all clients take part, by Eq. 27.

  Args:
    weights: Of the clients in each cluster's mean, `[clients, num_clusters]`.
    config: Options of FedSoft.

  Raises:
    ConfigError: If all are averaged in all clusters, without their weights.
  """
  is_same = config.aggregation.counts_all_the_same and np.all(weights > 0)
  if config.num_clusters > 1 and is_same:
    raise errors.ConfigError(
      f'aggregation with rule {config.aggregation.rule!r} and '
      f'mixes_nearest_neighbors={config.aggregation.mixes_nearest_neighbors} '
      f'counts clients the same, and in this round all {len(weights)} are in '
      'each cluster, so that all cluster models would be equal. Let a part of '
      "the clients be drawn (selection 'without_replacement' and a lower "
      "cohort_size_per_cluster), or take the rule 'geometric_median'"
    )


def _personalized_weights(server_state, client_state, client_index):
  """Returns the client's model, or its best centre if it was never sampled."""
  importance = tf.gather(server_state.importance_weights, client_index)
  fallback = trees.take(server_state.cluster_models, tf.argmax(importance))
  return trees.select(
    client_state.num_updates > 0, client_state.personalized_weights, fallback
  )
