"""CFL: recursive bipartitioning of clients by cosine similarity of updates.

Sattler, Müller and Samek, "Clustered Federated Learning: Model-Agnostic
Distributed Multi-Task Optimization under Privacy Constraints" (2020),
arXiv:1910.01991, Algorithm 1.

Round t:
  plan            all clients that have examples; each receives the model of its
                  own cluster only
  client_work     train locally; upload the update
  aggregation     every update is collected
  server_update   a cluster splits if the norm of its mean update is small and
                  an update is large, into two halves of similar directions
                  (`splitting`). Then each cluster's model <- itself less the
                  mean of its clients' updates

All clients begin in cluster 0. TensorFlow's types are static, so the state has
the maximal number `num_clusters` of models from the start, of which
`num_active` are in use. The others equal cluster 0's.

Names: epsilon_1, epsilon_2 = splitting.mean_norm_below, largest_norm_above;
  alpha_ij = `numerics.gram.cosines`; Delta theta_i = - client_update.
Reductions (tested): one cluster, or no split = FedAvg with all clients.
Cost per client and round: P down, P up, one local solve. The server needs each
  single update, so CFL is incompatible with secure aggregation.

The model served to a known client is its cluster's model. A client that takes
no part, or uploads nothing valid, keeps its cluster's number. New users choose
the model that fits their examples best, or get any.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.cfl import splitting as splitting_lib
from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import gram as gram_lib
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import client_sampling
from tff_algos.stages.server import robust_aggregation as robust


@dataclasses.dataclass(frozen=True)
class CflConfig:
  """Options of CFL.

  Attributes:
    num_clusters: Maximal number of clusters, >= 1.
    weighting: Client weight in its cluster's mean: `'examples'`, its number of
      examples, or `'uniform'`, all the same.
    splitting: Criteria of a split.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training; the optimizer state may be kept.
    aggregation: Aggregation rule in place of each cluster's mean. Splits use
      plain means.
  """

  num_clusters: int = 4
  weighting: str = 'examples'
  splitting: splitting_lib.SplittingConfig = splitting_lib.SplittingConfig()
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('num_clusters', self.num_clusters, minimum=1)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_positive('loss_scale', self.loss_scale)


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    cluster_models: `[num_clusters, ...]`; those not in use equal cluster 0's.
    cluster_assignment: Cluster of each client, int32 `[num_clients]`.
    num_active: Clusters in use, int32 `[]`.
    num_rounds: Rounds so far, int32 `[]`.
  """

  cluster_models: model_lib.Weights
  cluster_assignment: tf.Tensor
  num_active: tf.Tensor
  num_rounds: tf.Tensor


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    client_update: Received model minus trained model.
    client_weight: Weight of the client in the mean, float32 `[]`.
  """

  client_update: model_lib.Weights
  client_weight: tf.Tensor


def build_cfl(
  model: model_lib.Model, config: CflConfig
) -> algorithm.FederatedAlgorithm:
  """Builds CFL for a model common to all clusters."""
  num_clusters = config.num_clusters

  def init_server_state(seed, num_clients):
    return ServerState(
      trees.repeat(model.initialize(seed), num_clusters),
      tf.zeros([num_clients], tf.int32),
      tf.constant(1),
      tf.constant(0),
    )

  def cluster_of(server_state, client_index):
    return tf.gather(server_state.cluster_assignment, client_index)

  return algorithm.FederatedAlgorithm(
    name='cfl',
    num_clusters=num_clusters,
    init_server_state=robust.checked(config.aggregation, init_server_state),
    init_client_state=lambda run_seed, client_seed: (
      local_training_lib.initial_slots(
        trees.zeros(model.weights_spec()), config.local_training
      )
    ),
    phases={'train': _build_training(model, config)},
    plan_round=_build_plan(model),
    cluster_model=model,
    cluster_weights=lambda server_state: server_state.cluster_models,
    personalized_model=model,
    personalized_weights=lambda server_state, client_state, client_index: (
      trees.take(
        server_state.cluster_models, cluster_of(server_state, client_index)
      )
    ),
    membership=lambda server_state, client_state, client_index: tf.one_hot(
      cluster_of(server_state, client_index), num_clusters
    ),
    carry=carrying.Carry(
      {
        'cluster_models': carrying.KEEP,
        'cluster_assignment': carrying.CLUSTER,
        'num_active': carrying.KEEP,
        'num_rounds': carrying.KEEP,
      }
    ),
  )


def _build_training(model, config):
  """Returns the phase; its client input is the client's cluster's model."""
  objective = objectives.mean_loss(model, config.loss_scale)

  def train(message, received, client_state, data, seed):
    del message
    weights, slots, loss = local_training_lib.train_on(
      objective, received, client_state, data, seed, config.local_training
    )
    result = TrainResult(
      trees.subtract(received, weights),
      client_sampling.client_weight(data, config.weighting),
    )
    return algorithm.ClientOutput(result, slots, OrderedDict(loss=loss))

  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: (),
    client_work=train,
    aggregation={field: aggregation.Collect() for field in TrainResult._fields},
    server_update=_build_update(config),
    client_input=model.weights_spec(),
    uses_client_state=config.local_training.keeps_optimizer_state,
    uploads={
      'client_update': lambda message, received, result: trees.zeros_like(
        result['client_update']
      )
    },
  )


def _build_update(config):
  """Returns the server's update: splits, and FedAvg within each cluster."""
  num_clusters = config.num_clusters

  def update(server_state, aggregates):
    updates = aggregates['client_update']
    counts = aggregates['client_weight'].values
    nothing = tf.zeros(tf.shape(counts), tf.float64)
    num_rounds = server_state.num_rounds + 1
    clusters = splitting_lib.split(
      # Without a row that counts in their mean, products are of whole rows.
      gram_lib.centered_gram([updates.values], nothing),
      tf.gather(server_state.cluster_assignment, updates.client_index),
      tf.cast(counts, tf.float64),
      server_state.num_active,
      num_clusters,
      num_rounds >= config.splitting.first_round,
      config.splitting,
    )
    moved = trees.subtract(
      trees.take(server_state.cluster_models, clusters.parents),
      robust.cluster_means(
        config.aggregation,
        updates.values,
        clusters.assignment,
        counts,
        trees.zeros_like(server_state.cluster_models),
      ),
    )
    numbers = tf.range(num_clusters)
    in_use = tf.where(numbers < clusters.num_active, numbers, 0)
    return ServerState(
      trees.take(moved, in_use),
      aggregation.write_rows(
        server_state.cluster_assignment,
        updates._replace(values=clusters.assignment),
      ),
      clusters.num_active,
      num_rounds,
    ), OrderedDict(
      num_active_clusters=clusters.num_active,
      smallest_mean_norm=clusters.smallest_mean_norm,
      largest_update_norm=clusters.largest_norm,
    )

  return update


def _build_plan(model):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan_round(server_state, population, round_num, seed):
    del round_num, seed
    everyone = population.clients_with_examples
    own = np.asarray(server_state.cluster_assignment)[everyone]
    floats = len(everyone) * num_parameters
    yield algorithm.PhaseCall(
      'train',
      everyone,
      algorithm.take_rows(server_state.cluster_models, own),
      algorithm.Cost(floats, floats, len(everyone)),
    )

  return plan_round
