"""pFedKM: personalized models around cluster models found by k-means.

Tang, Guo and Guo, "Personalized Federated Learning with Clustered
Generalization" (preprint, June 2021; later known as CGPFL), Algorithm 1.

Round t:
  plan            all clients that have examples; each receives the model of its
                  own cluster only
  client_work     R local steps on the Moreau envelope (`moreau_envelope`)
  aggregation     all local models are collected
  server_update   k-means on the local models gives the new clusters; cluster
                  model <- (1 - beta) cluster model + beta mean. A cluster
                  without clients keeps its model

Names: Omega = cluster_models (the group models), omega_{i,R} = local_weights,
  theta_i = personalized_weights, P, J, Q = numerics.partition_matrices, K =
  num_clusters, beta = server_mixing, lambda = proximal_weight, eta =
  client_learning_rate, R = num_local_steps.
Reductions (tested): one cluster = pFedMe with all clients, bit for bit; as many
  clusters as clients = each client alone.
Cost per client and round: a model down, a model up (and the number of examples,
  if weighted by it; and theta, if clustered on it), R solves. The server holds
  all uploads at once and needs each of them, so it is incompatible with secure
  aggregation; with one cluster it needs their mean only.

All cluster models start equal. An upload depends on the received model, so
clusters with different initial models may keep a wrong partition for ever:
convergence of the assignment does not imply that it is right.
"""

import dataclasses
import warnings
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.pfedkm import regrouping
from tff_algos.core import algorithm, carrying, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import partition_matrices, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import moreau_envelope, objectives, weight_groups
from tff_algos.stages.server import client_sampling
from tff_algos.stages.server import robust_aggregation as robust

CLUSTER_ON = ('local_model', 'personalized_model')
# Largest server mixing covered by the paper's theory.
_LARGEST_PROVEN_MIXING = 2


@dataclasses.dataclass(frozen=True)
class PFedKMConfig:
  """Options of pFedKM.

  Attributes:
    num_clusters: K, from 1 to the number of clients.
    cohort_size: Clients sampled a round; 0 for all that have examples, as
      printed. Only their uploads are clustered, into K clusters; the others
      keep their cluster. A cluster none of whose clients takes part may be
      given another's model (docs/pfedkm.md).
    cluster_on: Clustered models: the `'local_model'` omega_{i,R}, as in
      Algorithm 1, or the `'personalized_model'` theta_i, as in Eq. 5, which is
      then uploaded, too.
    weighting: Client weight in its cluster's mean: `'uniform'`, all the same,
      or `'examples'`, its number of examples. k-means weights all equally.
    server_mixing: beta, > 0; 1 in all of the paper's experiments, up to 2 in
      its theory.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of the client work.
    k_means: Options of the clustering.
    aggregation: Aggregation rule in place of each cluster's mean. k-means is
      not robust: Byzantine clients may form a cluster of their own, or shift
      one.
  """

  num_clusters: int = 2
  cohort_size: int = 0
  cluster_on: str = 'local_model'
  weighting: str = 'uniform'
  server_mixing: float = 1.0
  loss_scale: float = 1.0
  local_training: moreau_envelope.MoreauEnvelopeConfig = (
    moreau_envelope.MoreauEnvelopeConfig()
  )
  k_means: regrouping.KMeansConfig = regrouping.KMeansConfig()
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('num_clusters', self.num_clusters, minimum=1)
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_one_of('cluster_on', self.cluster_on, CLUSTER_ON)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_positive('server_mixing', self.server_mixing)
    checks.check_positive('loss_scale', self.loss_scale)
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)
    if 0 < self.cohort_size < self.num_clusters:
      raise errors.ConfigError(
        f'cohort_size is {self.cohort_size}, fewer than num_clusters, '
        f'{self.num_clusters}: some clusters would be empty in every round; '
        'sample more clients, or 0 for all'
      )
    if self.server_mixing > _LARGEST_PROVEN_MIXING:
      warnings.warn(
        f'server_mixing is {self.server_mixing:g}; the theory covers it up to '
        f'{_LARGEST_PROVEN_MIXING} only',
        stacklevel=3,
      )

  @property
  def takes_one_mean(self) -> bool:
    """Returns whether a mean of all uploads is enough: nothing to cluster."""
    return self.num_clusters == 1 and self.aggregation.is_plain

  @property
  def uploads_both(self) -> bool:
    """Returns whether clients upload theta, too."""
    return self.cluster_on == 'personalized_model' and not self.takes_one_mean


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    cluster_models: `[num_clusters, ...]`; all equal before round 1.
    cluster_assignment: Cluster of each client, int32 `[num_clients]`.
    k_means_seed: Seed of k-means, the same in all rounds, on which the paper
      (appendix) bases its claim that the partition converges, int32 `[2]`.
  """

  cluster_models: model_lib.Weights
  cluster_assignment: tf.Tensor
  k_means_seed: tf.Tensor


def build_pfedkm(
  model: model_lib.Model, config: PFedKMConfig
) -> algorithm.FederatedAlgorithm:
  """Builds pFedKM for a model common to all clusters.

  >>> from tff_algos.models import registry
  >>> model = registry.build_model(
  ...   registry.parse_config({'name': 'mlp', 'hidden_sizes': [8]}),
  ...   task='classification',
  ...   input_shape=(4,),
  ...   num_outputs=3,
  ... )
  >>> pfedkm = build_pfedkm(model, PFedKMConfig(num_clusters=2))
  >>> state = pfedkm.init_server_state(tf.constant([0, 1]), num_clients=5)
  >>> state.cluster_assignment.numpy()
  array([0, 1, 0, 1, 0], dtype=int32)

  Raises:
    ConfigError: If the model has no weights of a name to cluster on.
  """
  num_clusters = config.num_clusters

  def init_server_state(seed, num_clients):
    return ServerState(
      trees.repeat(model.initialize(seed), num_clusters),
      tf.range(num_clients) % num_clusters,
      seed,
    )

  def cluster_of(server_state, client_index):
    return tf.gather(server_state.cluster_assignment, client_index)

  def received_by(server_state, client_index):
    return trees.take(
      server_state.cluster_models, cluster_of(server_state, client_index)
    )

  return algorithm.FederatedAlgorithm(
    name='pfedkm',
    num_clusters=num_clusters,
    init_server_state=robust.checked(config.aggregation, init_server_state),
    init_client_state=lambda run_seed, client_seed: (
      moreau_envelope.initial_state(model, config.local_training)
    ),
    phases={'train': _build_training(model, config)},
    plan_round=_build_plan(model, config),
    cluster_model=model,
    cluster_weights=lambda server_state: server_state.cluster_models,
    personalized_model=model,
    personalized_weights=lambda server_state, client_state, client_index: (
      client_state.serve(received_by(server_state, client_index))
    ),
    membership=lambda server_state, client_state, client_index: tf.one_hot(
      cluster_of(server_state, client_index), num_clusters
    ),
    carry=carrying.Carry(
      {
        'cluster_models': carrying.KEEP,
        'cluster_assignment': carrying.CLUSTER,
        'k_means_seed': carrying.KEEP,
      }
    ),
    local_weights=moreau_envelope.build_local_weights(
      config.local_training, received_by
    ),
  )


def _build_training(model, config):
  """Returns the phase; its client input is the client's cluster's model."""
  objective = objectives.mean_loss(model, config.loss_scale)

  def train(message, received, client_state, data, seed):
    del message
    models, client_state, metrics = moreau_envelope.work(
      objective, received, client_state, data, seed, config.local_training
    )
    result = OrderedDict(
      local_weights=models.local_weights,
      client_weight=client_sampling.client_weight(data, config.weighting),
    )
    if config.uploads_both:
      result['personalized_weights'] = models.personalized_weights
    return algorithm.ClientOutput(result, client_state, metrics)

  models = ['local_weights'] + ['personalized_weights'] * config.uploads_both
  aggregators = dict.fromkeys([*models, 'client_weight'], aggregation.Collect())
  server_update = _build_regrouping(model, config)
  if config.takes_one_mean:
    aggregators = {'local_weights': aggregation.WeightedMean('client_weight')}
    server_update = _build_one_mean(config)
  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: (),
    client_work=train,
    aggregation=aggregators,
    server_update=server_update,
    client_input=model.weights_spec(),
    uploads=dict.fromkeys(models, lambda message, received, result: received),
  )


def _build_regrouping(model, config):
  """Returns the server's update: Algorithm 1, grouping and aggregation."""
  num_clusters = config.num_clusters
  k_means = dataclasses.replace(
    config.k_means,
    weight_names=weight_groups.weight_names(
      model, config.k_means.weight_names, 'k_means.weight_names'
    ),
  )

  def regroup(server_state, aggregates):
    uploads = aggregates['local_weights']
    compared = aggregates.get('personalized_weights', uploads)
    old = server_state.cluster_models
    before = tf.gather(server_state.cluster_assignment, uploads.client_index)
    clusters = regrouping.cluster_uploads(
      compared, old, before, server_state.k_means_seed, k_means
    )
    weights = aggregates['client_weight'].values
    means = robust.cluster_means(
      config.aggregation,
      uploads.values,
      clusters.assignment,
      weights,
      _mean_starts(old, before, clusters.assignment, weights),
    )
    names = regrouping.name_clusters(
      before, clusters.assignment, uploads.is_valid, old, means
    )
    after = regrouping.rename(clusters.assignment, names)
    sizes = tf.math.unsorted_segment_sum(weights, after, num_clusters)
    mean = aggregation.Mean(trees.take(means, names), sizes)
    models, num_empty = _mix(old, mean, config)
    metrics = regrouping.measure(
      before, after, uploads.is_valid, clusters, models
    )
    metrics |= num_empty
    return server_state._replace(
      cluster_models=models,
      cluster_assignment=aggregation.write_rows(
        server_state.cluster_assignment, uploads._replace(values=after)
      ),
    ), metrics

  return regroup


def _mean_starts(old, before, after, weights):
  """Returns the mean model from which each cluster's clients started."""
  num_clusters = tf.nest.flatten(old)[0].shape[0]
  shares = partition_matrices.averaging_matrix(after, weights, num_clusters)
  started = tf.one_hot(before, num_clusters)
  return trees.mix(tf.matmul(shares, started, transpose_a=True), old)


def _build_one_mean(config):
  """Returns the server's update for one cluster."""

  def average(server_state, aggregates):
    mean = tf.nest.map_structure(
      lambda leaf: leaf[tf.newaxis], aggregates['local_weights']
    )
    models, metrics = _mix(server_state.cluster_models, mean, config)
    return server_state._replace(cluster_models=models), metrics

  return average


def _mix(old, mean, config):
  """Returns (1 - beta) old + beta mean; old for a cluster without clients."""
  mixed = trees.interpolate(old, mean.value, config.server_mixing)
  return aggregation.replace_clusters(mean._replace(value=mixed), old)


def _build_plan(model, config):
  num_parameters = trees.num_entries(model.weights_spec())
  uploaded = num_parameters * (1 + config.uploads_both)
  uploaded += config.weighting == 'examples'

  def plan_round(server_state, population, round_num, seed):
    if config.num_clusters > population.num_clients:
      raise errors.ConfigError(
        f'num_clusters is {config.num_clusters}, but there are only '
        f'{population.num_clients} clients; lower num_clusters'
      )
    drawn = client_sampling.draw_cohort(
      population, config.cohort_size, seed, round_num
    )
    own = np.asarray(server_state.cluster_assignment)[drawn]
    yield algorithm.PhaseCall(
      'train',
      drawn,
      algorithm.take_rows(server_state.cluster_models, own),
      algorithm.Cost(
        downlink_floats=len(drawn) * num_parameters,
        uplink_floats=len(drawn) * uploaded,
        local_solves=len(drawn) * config.local_training.num_local_steps,
      ),
    )

  return plan_round
