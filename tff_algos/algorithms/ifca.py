"""IFCA: iterative clustering; each client trains its best-fitting model.

Ghosh, Chung, Yin and Ramchandran, "An Efficient Framework for Clustered
Federated Learning" (NeurIPS 2020), arXiv:2006.04088, Algorithm 1.

Round t:
  plan            sample `cohort_size` clients uniformly
  make_message    all cluster models
  client_work     take the model of the lowest mean loss on the client's
                  examples (line 6; lowest id on a tie); train it (option II)
                  or take its gradient (option I)
  aggregation     per cluster, the mean over the clients that chose it
  server_update   option II: cluster model <- the mean (server_learning_rate 1;
                  else a step of that size towards it); option I: one gradient
                  step. A model that no client chose is unchanged

Before round 1, `stages.clusters.initialization` may initialize the models.

Names: k = num_clusters, M_t = cohort, s_i = one-hot cluster_weights,
  gamma of option I = server_learning_rate, of option II = learning rate of the
  client optimizer, tau = the steps of local_training.
Reductions (tested): one cluster, weighting by examples = FedAvg, bit for bit;
  one full-batch step, weighting by examples = gradient descent on the pooled
  examples of the cluster's clients, of one label each.
Cost per client and round: downlink k P, uplink P + k floats, one local solve,
  and a forward pass of all models.

The model served to a client is the present model of the cluster that it chose
when it last took part; cluster 0 for a client that never took part.
"""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import statistics, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import gradients, objectives
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.clusters import assignment
from tff_algos.stages.clusters import initialization as initialization_lib
from tff_algos.stages.server import client_sampling
from tff_algos.stages.server import robust_aggregation as robust

AVERAGINGS = ('models', 'gradients')


@dataclasses.dataclass(frozen=True)
class IfcaConfig:
  """Options of IFCA.

  Attributes:
    num_clusters: k, >= 1.
    cohort_size: Clients sampled a round, >= 0; 0 for all that have examples.
    averaging: `'models'` (option II) trains locally and replaces a cluster
      model by the mean of its clients' models; `'gradients'` (option I) takes
      one step along the sum of its clients' gradients, divided by the whole
      cohort as printed, so that a small cluster takes small steps.
    weighting: Client weight in these means: `'uniform'`, as printed; or
      `'examples'`, its number of examples.
    server_learning_rate: Step size of gradient averaging, > 0. For models, a
      factor on the mean client update; 1 is the algorithm as printed.
    loss_scale: Factor on the loss in training, > 0.
    local_training: Options of local training; gradient averaging uses them in
      the initialization alone.
    initialization: Initialization of the cluster models.
    aggregation: Aggregation rule in place of each cluster's mean.
  """

  num_clusters: int = 2
  cohort_size: int = 10
  averaging: str = 'models'
  weighting: str = 'uniform'
  server_learning_rate: float = 1.0
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  initialization: initialization_lib.InitializationConfig = (
    initialization_lib.InitializationConfig()
  )
  aggregation: robust.AggregationConfig = robust.AggregationConfig()

  def __post_init__(self):
    checks.check_int('num_clusters', self.num_clusters, minimum=1)
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_one_of('averaging', self.averaging, AVERAGINGS)
    checks.check_one_of('weighting', self.weighting, client_sampling.WEIGHTINGS)
    checks.check_positive('server_learning_rate', self.server_learning_rate)
    checks.check_positive('loss_scale', self.loss_scale)
    self.initialization.check_cohort_size(self.cohort_size, self.num_clusters)
    self.aggregation.check_cohort_size('cohort_size', self.cohort_size)

  @property
  def steps_at_server(self) -> bool:
    """Returns whether models move by the server's rate, not the clients'."""
    return self.averaging == 'gradients'


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    cluster_models: `[num_clusters, ...]`.
    seed_losses: As from `initialization.seed_losses`.
  """

  cluster_models: model_lib.Weights
  seed_losses: Any = ()


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    membership: One-hot of the last chosen cluster, `[num_clusters]` float32;
      zeros before the first choice.
  """

  membership: tf.Tensor


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    local_result: The trained weights, or the gradient; like the model.
    cluster_weights: Weight of the client in each cluster's mean,
      `[num_clusters]` float32; 0 except for the chosen cluster.
  """

  local_result: model_lib.Weights
  cluster_weights: tf.Tensor


def build_ifca(
  model: model_lib.Model, config: IfcaConfig
) -> algorithm.FederatedAlgorithm:
  """Builds IFCA for a model common to all clusters."""
  objective = objectives.mean_loss(model, config.loss_scale)
  num_parameters = trees.num_entries(model.weights_spec())
  built = algorithm.FederatedAlgorithm(
    name='ifca',
    num_clusters=config.num_clusters,
    init_server_state=robust.checked(
      config.aggregation,
      lambda seed, num_clients: ServerState(
        initialization_lib.cluster_models(model, config.num_clusters, seed),
        initialization_lib.seed_losses(config.initialization, num_clients),
      ),
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(
      tf.zeros([config.num_clusters])
    ),
    phases={'train': _build_training(model, config, objective)},
    plan_round=client_sampling.build_uniform_plan(
      config.cohort_size,
      downlink_floats=config.num_clusters * num_parameters,
      uplink_floats=num_parameters + config.num_clusters,
      local_solves=1 if config.averaging == 'models' else 0,
    ),
    cluster_model=model,
    cluster_weights=lambda server_state: server_state.cluster_models,
    personalized_model=model,
    personalized_weights=lambda server_state, client_state, client_index: (
      trees.take(
        server_state.cluster_models, tf.argmax(client_state.membership)
      )
    ),
    membership=lambda server_state, client_state, client_index: (
      client_state.membership
    ),
    carry=carrying.Carry(
      {
        'cluster_models': carrying.KEEP,
        'seed_losses': carrying.CLIENTS,
      }
    ),
  )
  return initialization_lib.precede(
    built,
    config.initialization,
    cohort_size=config.cohort_size,
    objective=objective,
    training=config.local_training,
  )


def _build_training(model, config, objective):
  """Returns the phase of Algorithm 1, lines 3-15."""
  learn = {
    'models': local_training_lib.train,
    'gradients': _gradient,
  }[config.averaging]

  def train(cluster_models, client_input, client_state, data, seed):
    del client_input, client_state
    losses = assignment.cluster_losses(model, cluster_models, data)
    cluster_id = assignment.best_cluster(
      losses, model.loss_weights(data.y, data.mask)
    )
    start = trees.take(cluster_models, cluster_id)
    result, loss = learn(objective, start, data, seed, config.local_training)
    membership = tf.one_hot(cluster_id, config.num_clusters)
    weight = client_sampling.client_weight(data, config.weighting)
    return algorithm.ClientOutput(
      TrainResult(result, weight * membership),
      ClientState(membership),
      OrderedDict(loss=loss),
    )

  def average(server_state, aggregates):
    mean, old = aggregates['local_result'], server_state.cluster_models
    rates = config.server_learning_rate * tf.ones([config.num_clusters])
    if config.averaging == 'gradients':
      rates *= tf.math.divide_no_nan(mean.weight, tf.reduce_sum(mean.weight))
    gradients = mean.value
    if config.averaging == 'models':
      gradients = trees.subtract(old, mean.value)
    moved = trees.subtract(old, trees.scale_rows(gradients, rates))
    models, metrics = aggregation.replace_clusters(
      mean._replace(value=moved), old
    )
    return server_state._replace(cluster_models=models), metrics

  phase = algorithm.Phase(
    name='train',
    make_message=lambda server_state: server_state.cluster_models,
    client_work=train,
    aggregation={'local_result': aggregation.ClusterMean('cluster_weights')},
    server_update=average,
    uploads={'local_result': _start(config)},
  )
  start = None if config.averaging == 'gradients' else 'cluster_models'
  return robust.replace_means(phase, config.aggregation, start)


def _start(config):
  """Returns the starting point of a client's result: its chosen model."""
  if config.averaging == 'gradients':
    return lambda message, _, result: trees.zeros_like(result['local_result'])
  return lambda cluster_models, _, result: trees.take(
    cluster_models, tf.argmax(result['cluster_weights'])
  )


def _gradient(objective, start, data, seed, config):
  """Returns the gradient on all examples and the loss, line 9."""
  del config
  gradient, losses = gradients.full_batch_gradient(
    objective, start, data, seed, 0
  )
  return gradient, statistics.weighted_mean(losses, data.mask)
