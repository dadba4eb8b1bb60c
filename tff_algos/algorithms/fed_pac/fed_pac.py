"""FedPAC: feature alignment and per-client combination of classifier heads.

Xu, Tong and Huang, "Personalized Federated Learning with Feature Alignment and
Classifier Collaboration" (ICLR 2023), arXiv:2306.11867, Algorithm 1.

Round t:
  plan            sample `cohort_size` clients uniformly; each gets its head
  make_message    the body u and the classes' centroids c
  client_work     moments of the features by u (`head_combination`); train
                  the head with u frozen; then u with the head frozen, on
                  the loss + lambda * mean of |feature - c_label|^2 / width;
                  sums of the new features by class
  aggregation     mean of u, weighted by examples; sums of the features; heads
                  and moments collected per client
  server_update   u <- the mean; c <- the means by class; each client's head <-
                  sum_j a_ij head_j, where a_i minimises the estimated test loss

Names: lambda = alignment_weight, u = shared_weights, a =
  head_combination.shares.
Readings: a class without a centroid has no penalty, and a class that is missing
  in a round keeps its centroid. The published code divides the penalty by the
  width, and trains the head for one epoch at rate 0.1. New users get the mean
  of all heads that were trained.
Reductions (tested): without alignment and combination it is FedRep (each client
  keeps its own head), see partial_fed_avg.
Cost per client and round: down u, head and centroids; up u, head, class sums
  and moments, each of classes * width; two solves. The server holds a head for
  each client.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.fed_pac import features, head_combination
from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.numerics import optimizers, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import client_sampling, global_model, peer_models


@dataclasses.dataclass(frozen=True)
class FedPacConfig:
  """Options of FedPAC.

  Attributes:
    cohort_size: Clients sampled per round, >= 0; 0 for all with examples.
    alignment_weight: lambda, >= 0.
    combines_heads: Whether heads are combined; if not, every client keeps the
      head that it trained.
    loss_scale: Factor of the loss, > 0.
    local_training: Local training of the body.
    head_training: Local training of the head, which comes first.
  """

  cohort_size: int = 10
  alignment_weight: float = 1.0
  combines_heads: bool = True
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )
  head_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig(
      optimizer=optimizers.OptimizerConfig('sgd', learning_rate=0.1)
    )
  )

  def __post_init__(self):
    checks.check_int('cohort_size', self.cohort_size, minimum=0)
    checks.check_at_least('alignment_weight', self.alignment_weight, 0)
    checks.check_positive('loss_scale', self.loss_scale)


class Centroids(NamedTuple):
  """Mean features of each class.

  Attributes:
    values: c, `[classes, width]`.
    is_known: 1 for a class with examples in any round so far, else 0,
      `[classes]`.
  """

  values: tf.Tensor
  is_known: tf.Tensor


class ServerState(NamedTuple):
  """Server state between rounds.

  Attributes:
    shared_weights: u.
    centroids: c.
    heads: Of each client, `[num_clients, ...]`.
    is_trained: 1 for a client that has trained its head, else 0,
      `[num_clients]`.
  """

  shared_weights: model_lib.Weights
  centroids: Centroids
  heads: model_lib.Weights
  is_trained: tf.Tensor


class Message(NamedTuple):
  """Broadcast of the server.

  Attributes:
    shared_weights: u.
    centroids: c.
  """

  shared_weights: model_lib.Weights
  centroids: Centroids


class TrainResult(NamedTuple):
  """Upload of a client.

  Attributes:
    shared_weights: u after its training.
    client_weight: Number of examples, float32 `[]`.
    class_counts: Examples of each class, `[classes]`.
    class_sums: Sums of their features, `[classes, width]`.
    head: The head after its training.
    moments: Of the features before training.
  """

  shared_weights: model_lib.Weights
  client_weight: tf.Tensor
  class_counts: tf.Tensor
  class_sums: tf.Tensor
  head: model_lib.Weights
  moments: head_combination.Moments


def build_fed_pac(
  model: model_lib.Model, config: FedPacConfig
) -> algorithm.FederatedAlgorithm:
  """Builds FedPAC for a classifier.

  Raises:
    ConfigError: If the model has no features before a dense last layer.
  """
  parted = features.FeatureModel(model)
  groups = parted.groups

  def init_server_state(seed, num_clients):
    shared, head = groups.split(model.initialize(seed))
    return ServerState(
      shared,
      Centroids(
        tf.zeros([model.num_outputs, parted.width]),
        tf.zeros([model.num_outputs]),
      ),
      trees.repeat(head, num_clients),
      tf.zeros([num_clients]),
    )

  return global_model.build_algorithm(
    'fed_pac',
    model,
    init_server_state=init_server_state,
    phases={'train': _build_training(model, parted, config)},
    plan_round=_build_plan(model, parted, config),
    carry=carrying.Carry(
      {
        'shared_weights': carrying.KEEP,
        'centroids': carrying.KEEP,
        'heads': carrying.CLIENTS,
        'is_trained': carrying.CLIENTS,
      },
      newcomer_rows=_take_mean_head,
    ),
    global_weights=lambda server_state: groups.join(
      server_state.shared_weights, _mean_head(server_state)
    ),
    personalized_weights=lambda server_state, client_state, client_index: (
      groups.join(
        server_state.shared_weights,
        trees.take(server_state.heads, client_index),
      )
    ),
  )


def _mean_head(server_state):
  """Returns the mean of all trained heads; of all, if none is."""
  shares = peer_models.shares(server_state.is_trained)
  return trees.mix(shares, server_state.heads)


def _take_mean_head(server_state, initial):
  """Returns the initial state with the mean head for newcomers."""
  heads = tf.nest.map_structure(
    lambda mean, new: np.broadcast_to(mean, new.shape),
    _mean_head(server_state),
    initial.heads,
  )
  return initial._replace(heads=heads)


def _build_training(model, parted, config):
  """Returns the phase; its client input is the client's head."""

  def train(message, head, client_state, data, seed):
    shared, centroids = message
    before = parted.class_sums(shared, data)
    # Head and body draw their own orders of the examples.
    head, head_loss = local_training_lib.train(
      lambda head, batch: _loss(model, parted, config, shared, head, batch),
      head,
      data,
      seed + 1,
      config.head_training,
    )
    shared, loss = local_training_lib.train(
      lambda shared, batch: _loss(
        model, parted, config, shared, head, batch, centroids
      ),
      shared,
      data,
      seed,
      config.local_training,
    )
    after = parted.class_sums(shared, data)
    return algorithm.ClientOutput(
      TrainResult(
        shared_weights=shared,
        client_weight=client_sampling.client_weight(data, 'examples'),
        class_counts=after.counts,
        class_sums=after.sums,
        head=head,
        moments=head_combination.moments(before),
      ),
      client_state,
      OrderedDict(loss=loss, head_loss=head_loss),
    )

  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: Message(
      server_state.shared_weights, server_state.centroids
    ),
    client_work=train,
    aggregation={
      'shared_weights': aggregation.WeightedMean('client_weight'),
      **dict.fromkeys(['class_counts', 'class_sums'], aggregation.Sum()),
      **dict.fromkeys(
        ['head', 'moments', 'client_weight'], aggregation.Collect()
      ),
    },
    server_update=_build_update(config),
    client_input=parted.groups.spec.private,
    uses_client_state=False,
    uploads={
      'shared_weights': lambda message, *_: message.shared_weights,
      'head': lambda message, head, result: head,
    },
  )


def _loss(model, parted, config, shared, head, batch, centroids=None):
  """Returns the objective of both trainings, and each example's loss."""
  found = parted.features(shared, batch.x)
  losses = model.example_losses(parted.outputs(head, found), batch.y)
  value = config.loss_scale * objectives.real_mean(losses, batch.mask)
  if centroids is not None and config.alignment_weight:
    way = found - tf.gather(centroids.values, batch.y)
    penalties = tf.reduce_mean(tf.square(way), axis=1)
    penalties *= tf.gather(centroids.is_known, batch.y)
    penalty = objectives.real_mean(penalties, batch.mask)
    value += config.alignment_weight * penalty
  return value, losses


def _build_update(config):
  def update(server_state, aggregates):
    old, counts = server_state.centroids, aggregates['class_counts']
    means = tf.math.divide_no_nan(
      aggregates['class_sums'], counts[:, tf.newaxis]
    )
    centroids = Centroids(
      trees.select_rows(counts > 0, means, old.values),
      tf.maximum(old.is_known, tf.cast(counts > 0, tf.float32)),
    )
    heads, moments = aggregates['head'], aggregates['moments'].values
    is_there = heads.is_valid & (aggregates['client_weight'].values > 0)
    if config.combines_heads:
      shares = head_combination.shares(moments, is_there)
      heads = heads._replace(values=trees.mix(shares, heads.values))
    heads = heads._replace(is_valid=is_there)
    trained = heads._replace(values=tf.ones_like(is_there, tf.float32))
    return ServerState(
      aggregation.mean_or_old(
        aggregates['shared_weights'], server_state.shared_weights
      ),
      centroids,
      aggregation.write_rows(server_state.heads, heads),
      aggregation.write_rows(server_state.is_trained, trained),
    ), OrderedDict()

  return update


def _build_plan(model, parted, config):
  spec = parted.groups.spec
  num_body, num_head = (trees.num_entries(part) for part in spec)
  by_class = model.num_outputs * parted.width
  downlink = num_body + num_head + by_class + model.num_outputs
  uplink = num_body + num_head + 2 * by_class + model.num_outputs + 2

  def plan_round(server_state, population, round_num, seed):
    drawn = client_sampling.draw_cohort(
      population, config.cohort_size, seed, round_num
    )
    heads = algorithm.take_rows(server_state.heads, drawn)
    count = len(drawn)
    cost = algorithm.Cost(count * downlink, count * uplink, 2 * count)
    yield algorithm.PhaseCall('train', drawn, heads, cost)

  return plan_round
