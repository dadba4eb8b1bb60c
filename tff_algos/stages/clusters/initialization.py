"""Where the cluster models start: drawn at random, or found at clients.

Algorithms that train the cluster which fits a client best find what their first
models let them find: if one fits everybody best, nobody ever trains another.
`precede` gives such an algorithm rounds of its own for it, before its first.

`'k-means++'` (one round): that of Arthur and Vassilvitskii (2007), with a
client's loss in place of a point's squared distance, as FedJAX may start
HypCluster (Mansour et al. 2020, arXiv:2002.10619):
  draw a client uniformly; train a model at it; that is cluster 0's
  for each further cluster: ask clients for their mean loss under the best of
  the models so far, draw one with a chance in proportion to it, and train a
  model at it
All are trained from one random model, so that only the clients' data tell them
apart.

`'warm_start'` (`num_rounds` rounds): FedAvg on one model; in the last of the
rounds the cohort is parted at random, one group a cluster, and a cluster's
model is the mean of its group's. So starts the released code of IFCA on
FEMNIST.
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
# Of its random numbers, whatever the mode is called.
_KMEANS_STREAM = 'kmeans++'
WARM_START = 'warm_start'


@dataclasses.dataclass(frozen=True)
class InitializationConfig:
  """How the first cluster models come about.

  Attributes:
    mode: `'random'`, an independent draw of the weights for each cluster;
      `'k-means++'` or `'warm_start'`, see the module.
    num_candidates: Of `'k-means++'`: clients that report their loss before a
      draw from among them, >= 0; 0 asks all that have examples.
    num_rounds: Of `'warm_start'`: its rounds, >= 1.
  """

  mode: str = RANDOM
  num_candidates: int = 0
  num_rounds: int = 3

  def __post_init__(self):
    checks.check_one_of('mode', self.mode, (RANDOM, KMEANS, WARM_START))
    checks.check_int('num_candidates', self.num_candidates, minimum=0)
    checks.check_int('num_rounds', self.num_rounds, minimum=1)

  def check_cohort_size(self, cohort_size: int, num_clusters: int) -> None:
    """Raises ConfigError if a cohort cannot be parted among the clusters."""
    if self.mode == WARM_START and 0 < cohort_size < num_clusters:
      raise errors.ConfigError(
        "initialization.mode 'warm_start' parts the cohort among "
        f'{num_clusters} '
        f'clusters, but cohort_size is {cohort_size}; raise cohort_size to '
        f'{num_clusters} or more, or choose another mode'
      )


class SeedInput(NamedTuple):
  """What the plan tells a client of `seed_centers`.

  Attributes:
    start_id: Cluster whose model it starts from, int32 `[]`.
    cluster_weights: What it weighs in the mean of each cluster,
      `[num_clusters]` float32, >= 0.
  """

  start_id: Any
  cluster_weights: Any


def cluster_models(
  model: model_lib.Model, num_clusters: int, seed: tf.Tensor
) -> model_lib.Weights:
  """Returns an independent draw of the model's weights for each cluster.

  Equal cluster models would tie on every example, and all but the first would
  stay without clients for ever.

  Args:
    model: The model that all clusters share.
    num_clusters: How many, >= 1.
    seed: int32 `[2]`; algorithms with the same seed start alike.

  Returns:
    Weights `[num_clusters, ...]`.
  """
  drawn = [
    model.initialize(index_random.fold_in(seed, s)) for s in range(num_clusters)
  ]
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *drawn)


def start_equal(model: model_lib.Model, names: Iterable[str]) -> bool:
  """Returns whether two draws of the named weights are the same."""
  with tf.init_scope():
    draws = cluster_models(model, 2, tf.constant([0, 0]))
    return all(np.array_equal(*draws[name].numpy()) for name in names)


def seed_losses(config: InitializationConfig, num_clients: int) -> Structure:
  """Returns the server state's field `seed_losses` before round 1.

  Returns:
    float32 `[num_clients]` for `'k-means++'`: what each client last reported;
    else `()`, which takes no room in a state.
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
      `cluster_models`, of `cluster_models`, and `seed_losses`, of
      `seed_losses`. It counts its rounds from the first of its own.
    config: The mode; `'random'` returns the algorithm as it is.
    cohort_size: Clients of a round of FedAvg; 0 for all that have examples.
    objective: What clients train on.
    training: How they train.

  Raises:
    ConfigError: If `'random'` makes equal models of several clusters.
  """
  model, num_clusters = algorithm.cluster_model, algorithm.num_clusters
  if config.mode == RANDOM:
    if num_clusters > 1 and start_equal(model, model.weights_spec()):
      raise errors.ConfigError(
        f'the {num_clusters} cluster models would start equal, as all draws of '
        f'{model.name} are, and stay so: set initialization.mode to '
        f'{KMEANS!r} or {WARM_START!r}, or name a layer in '
        'model.pretrained.fresh'
      )
    return algorithm
  phases = [_build_training(num_clusters, objective, training)]
  if config.mode == KMEANS:
    phases.append(_build_reporting(model, num_clusters))
    num_rounds, plan = 1, _kmeans_plan(model, num_clusters, config)
  else:
    num_rounds = config.num_rounds
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
  """Returns the phase that makes cluster models of what clients train."""

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
    mean = aggregates['local_weights']
    # What nobody trained stays as it is.
    models = trees.select_rows(
      mean.weight > 0, mean.value, server_state.cluster_models
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
  )


def _build_reporting(model, num_clusters):
  """Returns the phase that asks for losses under the models so far.

  Its client input is their number, int32 `[]`.
  """

  def report(models, num_centers, client_state, data, seed):
    del seed
    losses = assignment.cluster_losses(model, models, data)
    totals, weights = statistics.masked_mean(losses, data.mask)
    # A client whose every loss is infinite is refused, and has the chance 0.
    infinite = tf.fill([num_clusters], float('inf'))
    is_center = tf.range(num_clusters) < num_centers
    lowest = tf.reduce_min(
      tf.where(is_center, totals / tf.maximum(weights, 1.0), infinite)
    )
    return algorithm_lib.ClientOutput(
      OrderedDict(loss=lowest), client_state, OrderedDict()
    )

  def keep(server_state, aggregates):
    reported = aggregates['loss']
    losses = tf.tensor_scatter_nd_update(
      server_state.seed_losses,
      reported.client_index[:, tf.newaxis],
      reported.values,
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
  # The random model that is replaced last is everybody's start.
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
  """Returns chances in proportion to losses >= 0; equal ones if all are 0."""
  total = losses.sum()
  return losses / total if total else np.full(len(losses), 1 / len(losses))


def _warm_start_plan(model, num_clusters, num_rounds, cohort_size):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan(population, round_num, seed):
    client_sampling.check_cohort_size('cohort_size', cohort_size, population)
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
