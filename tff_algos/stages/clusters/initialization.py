"""Initialization of cluster models: random, k-means++ or warm start.

Algorithms that train the best-fitting cluster model of each client depend on
their initial models: if one model fits all clients best, the others are never
trained. `precede` adds initialization rounds before an algorithm's first.

`'k-means++'` (one round): seeding of Arthur and Vassilvitskii (2007), with a
client's loss in place of a point's squared distance, an option of FedJAX's
HypCluster (Mansour et al. 2020, arXiv:2002.10619):
  sample a client uniformly and train the model of cluster 0 on it
  for each further cluster: collect clients' mean losses under the best of the
  models so far, sample a client with probability in proportion to its loss, and
  train the cluster's model on it
All are trained from one random model, so that they differ by the clients' data
alone.

`'warm_start'` (`num_rounds` rounds): FedAvg on one model; in the last of these
rounds the cohort is divided at random, one group a cluster, and a cluster's
model is the mean of its group's models. The released code of IFCA on FEMNIST
starts in this way.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors, seeds
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import index_random, statistics, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training, objectives
from tff_algos.stages.clusters import assignment
from tff_algos.stages.server import client_sampling

RANDOM = 'random'
KMEANS = 'k-means++'
# Purpose of its random draws, independent of the spelling of the mode.
_KMEANS_STREAM = 'kmeans++'
WARM_START = 'warm_start'


@dataclasses.dataclass(frozen=True)
class InitializationConfig:
  """Options of the initialization of cluster models.

  Attributes:
    mode: `'random'`, an independent draw of the weights for each cluster;
      `'k-means++'` or `'warm_start'`, see the module.
    num_candidates: For `'k-means++'`: clients that report their loss before one
      of them is sampled, >= 0; 0 for all that have examples.
    num_rounds: For `'warm_start'`: number of its rounds, >= 1.
  """

  mode: str = RANDOM
  num_candidates: int = 0
  num_rounds: int = 3

  def __post_init__(self):
    checks.check_one_of('mode', self.mode, (RANDOM, KMEANS, WARM_START))
    checks.check_int('num_candidates', self.num_candidates, minimum=0)
    checks.check_int('num_rounds', self.num_rounds, minimum=1)

  def check_cohort_size(self, cohort_size: int, num_clusters: int) -> None:
    """Raises ConfigError if a cohort has fewer clients than clusters."""
    if self.mode == WARM_START and 0 < cohort_size < num_clusters:
      raise errors.ConfigError(
        "initialization.mode 'warm_start' divides the cohort among "
        f'{num_clusters} '
        f'clusters, but cohort_size is {cohort_size}; raise cohort_size to '
        f'{num_clusters} or more, or choose another mode'
      )


class SeedInput(NamedTuple):
  """Client input of `seed_centers`.

  Attributes:
    start_id: Cluster whose model the client starts from, int32 `[]`.
    cluster_weights: The client's weight in the mean of each cluster,
      `[num_clusters]` float32, >= 0.
  """

  start_id: Any
  cluster_weights: Any


def cluster_models(
  model: model_lib.Model, num_clusters: int, seed: tf.Tensor
) -> model_lib.Weights:
  """Returns an independent draw of the model's weights for each cluster.

  Equal cluster models would tie on every example, and no client would ever be
  assigned to any but the first.

  Args:
    model: The model of all clusters.
    num_clusters: Number of clusters, >= 1.
    seed: int32 `[2]`; algorithms with the same seed start equal.

  Returns:
    Weights `[num_clusters, ...]`.
  """
  drawn = [
    model.initialize(index_random.fold_in(seed, s)) for s in range(num_clusters)
  ]
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *drawn)


def start_equal(model: model_lib.Model, names: Iterable[str]) -> bool:
  """Returns whether the named weights have a deterministic initialization."""
  with tf.init_scope():
    draws = cluster_models(model, 2, tf.constant([0, 0]))
    return all(np.array_equal(*draws[name].numpy()) for name in names)


def check_differ(
  model: model_lib.Model, num_clusters: int, remedy: str
) -> None:
  """Raises ConfigError if the models of several clusters start equal.

  Args:
    model: The model of all clusters.
    num_clusters: Number of clusters, >= 1.
    remedy: Option to set instead, for the error.
  """
  if num_clusters > 1 and start_equal(model, model.weights_spec()):
    raise errors.ConfigError(
      f'the {num_clusters} cluster models would start equal, because the '
      f'initial weights of {model.name} are constant, and stay so: {remedy}, '
      'or name a layer in model.pretrained.fresh'
    )


def seed_losses(config: InitializationConfig, num_clients: int) -> Structure:
  """Returns the server state's field `seed_losses` before round 1.

  Returns:
    float32 `[num_clients]` for `'k-means++'`: the last reported loss of each
    client; else `()`, which takes no memory.
  """
  return tf.zeros([num_clients]) if config.mode == KMEANS else ()


def precede(
  algorithm: algorithm_lib.FederatedAlgorithm,
  config: InitializationConfig,
  *,
  cohort_size: int,
  objective: objectives.Objective,
  training: local_training.LocalTrainingConfig,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm with the initialization's rounds before its own.

  Args:
    algorithm: Its server state is a NamedTuple with the fields
      `cluster_models`, from `cluster_models`, and `seed_losses`, from
      `seed_losses`. It counts rounds from its own first one.
    config: The mode; `'random'` returns the algorithm unchanged.
    cohort_size: Clients of a round of FedAvg; 0 for all that have examples.
    objective: Local objective of the clients.
    training: Options of their local training.

  Raises:
    ConfigError: If the models of several clusters are equal with `'random'`.
  """
  model, num_clusters = algorithm.cluster_model, algorithm.num_clusters
  if config.mode == RANDOM:
    remedy = f'set initialization.mode to {KMEANS!r} or {WARM_START!r}'
    check_differ(model, num_clusters, remedy)
    return algorithm
  # Without its clients, a cluster would keep a random model of its own, or one
  # that others have, too.
  seeding = _build_training(num_clusters, objective, training)._replace(
    has_dropout=False
  )
  if config.mode == KMEANS:
    phases = [seeding, _build_reporting(model, num_clusters)]
    num_rounds, plan = 1, _kmeans_plan(model, num_clusters, config)
  else:
    phases, num_rounds = [seeding], config.num_rounds
    plan = _warm_start_plan(model, num_clusters, num_rounds, cohort_size)

  def plan_round(server_state, population, round_num, seed):
    if round_num <= num_rounds:
      yield from plan(population, round_num, seed)
    else:
      yield from algorithm.plan_round(
        server_state, population, round_num - num_rounds, seed
      )

  return dataclasses.replace(
    algorithm,
    phases={**algorithm.phases, **{phase.name: phase for phase in phases}},
    plan_round=plan_round,
  )


def _build_training(num_clusters, objective, training):
  """Returns the phase that trains initial cluster models at clients."""

  def train(models, client_input, client_state, data, seed):
    start = trees.take(models, client_input.start_id)
    weights, loss = local_training.train(objective, start, data, seed, training)
    result = OrderedDict(
      local_weights=weights, cluster_weights=client_input.cluster_weights
    )
    return algorithm_lib.ClientOutput(
      result, client_state, OrderedDict(loss=loss)
    )

  def average(server_state, aggregates):
    models, _ = aggregation.replace_clusters(
      aggregates['local_weights'], server_state.cluster_models
    )
    return server_state._replace(cluster_models=models), OrderedDict()

  return algorithm_lib.Phase(
    name='seed_centers',
    make_message=lambda server_state: server_state.cluster_models,
    client_work=train,
    aggregation={'local_weights': aggregation.ClusterMean('cluster_weights')},
    server_update=average,
    client_input=SeedInput(
      tf.TensorSpec([], tf.int32), tf.TensorSpec([num_clusters], tf.float32)
    ),
    uses_client_state=False,
    uploads={
      'local_weights': lambda models, client_input, result: trees.take(
        models, client_input.start_id
      )
    },
  )


def _build_reporting(model, num_clusters):
  """Returns the phase in which clients report losses under the models so far.

  Its client input is the number of these models, int32 `[]`.
  """

  def report(models, num_centers, client_state, data, seed):
    del seed
    losses = assignment.cluster_losses(model, models, data)
    totals, weights = statistics.weighted_mean(
      losses, model.loss_weights(data.y, data.mask)
    )
    # A client with infinite losses only is rejected, and has probability 0.
    is_center = tf.range(num_clusters) < num_centers
    lowest = tf.reduce_min(
      tf.where(is_center, totals / tf.maximum(weights, 1.0), float('inf'))
    )
    return algorithm_lib.ClientOutput(
      OrderedDict(loss=lowest), client_state, OrderedDict()
    )

  def keep(server_state, aggregates):
    losses = aggregation.write_rows(
      server_state.seed_losses, aggregates['loss']
    )
    return server_state._replace(seed_losses=losses), OrderedDict()

  return algorithm_lib.Phase(
    name='seed_losses',
    make_message=lambda server_state: server_state.cluster_models,
    client_work=report,
    aggregation={'loss': aggregation.Collect()},
    server_update=keep,
    client_input=tf.TensorSpec([], tf.int32),
    uses_client_state=False,
  )


def _kmeans_plan(model, num_clusters, config):
  num_parameters = trees.num_entries(model.weights_spec())
  rows = np.eye(num_clusters, dtype=np.float32)
  # All start from the random model that is replaced last.
  start_id = np.array([num_clusters - 1], np.int32)

  def plan(population, round_num, seed):
    for name, number in (
      ('num_clusters', num_clusters),
      ('initialization.num_candidates', config.num_candidates),
    ):
      client_sampling.check_cohort_size(name, number, population)
    generator = seeds.numpy_generator(seed, _KMEANS_STREAM, round_num)
    left = population.clients_with_examples
    candidates, losses = left, np.zeros(len(left))
    for cluster_id in range(num_clusters):
      if cluster_id:
        asked = min(config.num_candidates or len(left), len(left))
        candidates = client_sampling.draw_uniform(left, asked, generator)
        server_state = yield algorithm_lib.PhaseCall(
          'seed_losses',
          candidates,
          np.full(asked, cluster_id, np.int32),
          algorithm_lib.Cost(asked * cluster_id * num_parameters, asked),
        )
        losses = np.asarray(server_state.seed_losses, np.float64)[candidates]
      drawn = generator.choice(candidates, p=_chances(losses))
      left = left[left != drawn]
      yield algorithm_lib.PhaseCall(
        'seed_centers',
        np.array([drawn], np.int32),
        SeedInput(start_id, rows[cluster_id : cluster_id + 1]),
        algorithm_lib.Cost(num_parameters, num_parameters, 1),
      )

  return plan


def _chances(losses: np.ndarray) -> np.ndarray:
  """Returns probabilities in proportion to losses >= 0; equal if all are 0."""
  total = losses.sum()
  return losses / total if total else np.full(len(losses), 1 / len(losses))


def _warm_start_plan(model, num_clusters, num_rounds, cohort_size):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan(population, round_num, seed):
    client_sampling.check_cohort_size('cohort_size', cohort_size, population)
    client_sampling.check_cohort_size('num_clusters', num_clusters, population)
    generator = seeds.numpy_generator(seed, WARM_START, round_num)
    available = population.clients_with_examples
    count = cohort_size or len(available)
    drawn = client_sampling.draw_uniform(available, count, generator)
    weights = np.ones([count, num_clusters])
    if round_num == num_rounds:
      groups = generator.permutation(count) % num_clusters
      weights = np.eye(num_clusters)[groups]
    weights *= population.num_examples[drawn, np.newaxis]
    floats = count * num_parameters
    yield algorithm_lib.PhaseCall(
      'seed_centers',
      drawn,
      SeedInput(np.zeros(count, np.int32), weights.astype(np.float32)),
      algorithm_lib.Cost(floats, floats, count),
    )

  return plan
