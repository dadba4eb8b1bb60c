"""Segmented gossip: serverless averaging of model segments with random peers.

Hu, Jiang and Wang, "Decentralized Federated Learning: A Segmented Gossip
Approach" (2019), arXiv:1908.07782; GossipFL in the comparison of Che et al.,
arXiv:2108.00365.

Round t:
  plan            all clients; each worker samples R peers for each of S
                  segments
  client_work     merge: the worker's own model of the last round and the
                  segments pulled then; train from there; offer the result
  aggregation     every model is collected, so that peers can pull from it
  server_update   for each worker and segment: the mean of the segment over its
                  R peers by their examples, and its weight beside the worker's
                  own model
So a worker's model after round t is, for each segment, the mean over its own
and its peers' models trained in round t. The sum is split: the worker keeps its
own model, and the "server" the pulled segments, until they are merged.

There is no server. The "server state" simulates the workers' inboxes (the
pulled half of each merge, one model a client), and holds `model_weights`, the
mean of all merged models by examples: no worker holds it; it is for new users
and reports.

Names: S = num_segments, R = num_replicas. Segments are consecutive entries of
  the flattened model, whose sizes differ by 1 at most.
Readings: peers are sampled anew for each segment, uniformly, without
  replacement, among all others with examples, on the host from (seed, round,
  worker). A worker without examples has weight 0 and only follows. A worker
  that drops out sends nothing and keeps its model.
Theory: without training and with equal examples, the expected squared distance
  to the mean before shrinks by (1 - R / (N - 1)) / (R + 1) a round, N workers.
Reductions (tested): R = all peers = FedAvg with all clients, at every worker; R
  peers drawn by hand = NumPy.
Cost per worker and round: R (P + S) floats down and as many up (each pulled
  segment comes with its worker's number of examples), 2 R S messages (a
  request, an answer), one solve. The simulation holds four models a client (its
  state, its inbox, the collected and the merged model), and mixes in
  clients^2 * P operations.

The model served to a client is its merged model; `local_weights` is the model
before merging.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.gossip import segments
from tff_algos.core import algorithm, carrying, checks, errors, seeds
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Leaf
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import global_model
from tff_algos.stages.server import peer_models as peers_lib

# Placeholder, where there are fewer peers than `num_replicas`.
_NOBODY = -1


@dataclasses.dataclass(frozen=True)
class GossipConfig:
  """Options of segmented gossip.

  Attributes:
    num_segments: S, from 1 to the model's number of parameters.
    num_replicas: R, >= 1: number of peers from which each segment is pulled;
      all others if there are fewer.
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training.
  """

  num_segments: int = 2
  num_replicas: int = 2
  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_int('num_segments', self.num_segments, minimum=1)
    checks.check_int('num_replicas', self.num_replicas, minimum=1)
    checks.check_positive('loss_scale', self.loss_scale)


class Inbox(NamedTuple):
  """Pulled segments of a worker, or stacks `[num_clients, ...]` of all workers.

  Attributes:
    pulled: The mean of its peers' models by segment, flat `[P]`; its own model
      where it has pulled no segment.
    share: Weight of this mean beside its own model, in [0, 1], float32
      `[num_segments]`; 0 where it has pulled no segment.
  """

  pulled: Leaf
  share: Leaf


class ServerState(NamedTuple):
  """Simulated state of all workers.

  Attributes:
    model_weights: The mean of all models, for new users and reports.
    inbox: Inbox of each worker, `[num_clients, ...]`.
  """

  model_weights: model_lib.Weights
  inbox: Inbox


class ClientState(NamedTuple):
  """Worker state between rounds.

  Attributes:
    local_weights: The worker's model after training, before merging.
  """

  local_weights: model_lib.Weights


class WorkerInput(NamedTuple):
  """Client input of a worker.

  Attributes:
    inbox: Segments pulled in the last round.
    peers: Peers of this round, client indices int32
      `[num_segments, num_replicas]`; -1 for none.
  """

  inbox: Inbox
  peers: Leaf


class TrainResult(NamedTuple):
  """Offered model of a worker, and its peers.

  Attributes:
    local_weights: The worker's model after training.
    num_examples: float32 `[]`.
    peers: As in `WorkerInput`.
  """

  local_weights: model_lib.Weights
  num_examples: tf.Tensor
  peers: Leaf


def build_gossip(
  model: model_lib.Model, config: GossipConfig
) -> algorithm.FederatedAlgorithm:
  """Builds segmented gossip for a model with one instance per worker.

  Raises:
    ConfigError: If there are more segments than parameters.
  """
  num_parameters = trees.num_entries(model.weights_spec())
  if config.num_segments > num_parameters:
    raise errors.ConfigError(
      f'num_segments is {config.num_segments}, but model {model.name!r} has '
      f'only {num_parameters} parameters; lower num_segments'
    )
  sizes = segments.segment_sizes(num_parameters, config.num_segments)

  def init_server_state(seed, num_clients):
    weights = model.initialize(seed)
    flat = trees.flatten(weights)
    return ServerState(
      weights,
      Inbox(
        tf.repeat(flat[tf.newaxis], num_clients, axis=0),
        tf.zeros([num_clients, config.num_segments]),
      ),
    )

  def merged(server_state, client_state, client_index):
    inbox = trees.take(server_state.inbox, client_index)
    return _merge(client_state.local_weights, inbox, sizes)

  built = global_model.build_algorithm(
    'gossip',
    model,
    init_server_state=init_server_state,
    # The run's seed: all clients start from one model.
    init_client_state=lambda run_seed, client_seed: ClientState(
      model.initialize(run_seed)
    ),
    phases={'train': _build_training(model, config, sizes)},
    plan_round=_build_plan(config, sizes),
    carry=carrying.Carry(
      {
        'model_weights': carrying.KEEP,
        'inbox': carrying.CLIENTS,
      },
      newcomer_rows=_pull_mean,
    ),
    personalized_weights=merged,
  )
  return dataclasses.replace(
    built,
    local_weights=lambda server_state, client_state, client_index: (
      client_state.local_weights
    ),
  )


def _pull_mean(server_state, initial):
  """Returns the initial state; newcomers have pulled the mean of all models."""
  mean = np.concatenate(
    [np.ravel(leaf) for leaf in tf.nest.flatten(server_state.model_weights)]
  )
  pulled = np.broadcast_to(mean, initial.inbox.pulled.shape)
  return initial._replace(
    inbox=Inbox(pulled, np.ones_like(initial.inbox.share))
  )


def _merge(own, inbox, sizes):
  """Returns the mean of a worker's own model and its pulled segments."""
  flat = peers_lib.move(
    trees.flatten(own), inbox.pulled, segments.spread(inbox.share, sizes)
  )
  return trees.unflatten(flat, own)


def _build_training(model, config, sizes):
  """Returns the phase: merge, train, pull."""
  objective = objectives.mean_loss(model, config.loss_scale)
  spec = model.weights_spec()
  shape = [config.num_segments, config.num_replicas]

  def train(message, client_input, client_state, data, seed):
    del message
    weights, loss = local_training_lib.train(
      objective,
      _merge(client_state.local_weights, client_input.inbox, sizes),
      data,
      seed,
      config.local_training,
    )
    result = TrainResult(weights, tf.reduce_sum(data.mask), client_input.peers)
    return algorithm.ClientOutput(
      result, ClientState(weights), OrderedDict(loss=loss)
    )

  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: (),
    client_work=train,
    aggregation={field: aggregation.Collect() for field in TrainResult._fields},
    server_update=_build_exchange(spec, sizes),
    client_input=WorkerInput(
      Inbox(
        tf.TensorSpec([sum(sizes)], tf.float32),
        tf.TensorSpec([config.num_segments], tf.float32),
      ),
      tf.TensorSpec(shape, tf.int32),
    ),
    # A worker's own model is private; the pulled segments are not.
    uploads={
      'local_weights': lambda message, client_input, result: trees.unflatten(
        client_input.inbox.pulled, spec
      )
    },
  )


def _build_exchange(spec, sizes):
  """Returns the server's update: all workers pull their segments."""

  def exchange(server_state, aggregates):
    sent = aggregates['local_weights']
    num_examples = aggregates['num_examples'].values
    rows = segments.flatten_rows(sent.values)
    is_pulled = _pulls(
      aggregates['peers'], tf.shape(server_state.inbox.share)[0]
    )
    weights = is_pulled * num_examples
    totals = tf.reduce_sum(weights, axis=2)
    divisors = totals[:, :, tf.newaxis]
    # A worker that pulls no segment keeps its own.
    means = tf.where(
      divisors > 0,
      tf.math.divide_no_nan(weights, divisors),
      tf.eye(tf.shape(rows)[0]),
    )
    new = Inbox(
      segments.mix_rows(means, rows, sizes),
      tf.transpose(tf.math.divide_no_nan(totals, totals + num_examples)),
    )
    merged = peers_lib.move(rows, new.pulled, segments.spread(new.share, sizes))
    mean, distance = peers_lib.consensus(merged, num_examples)
    return ServerState(
      trees.select(
        tf.reduce_sum(num_examples) > 0,
        trees.unflatten(mean, spec),
        server_state.model_weights,
      ),
      aggregation.write_rows(server_state.inbox, sent._replace(values=new)),
    ), OrderedDict(
      consensus_distance=distance,
      # A request for each segment and peer, and its answer.
      num_messages=2 * tf.cast(tf.reduce_sum(is_pulled), tf.int32),
    )

  return exchange


def _pulls(peers, num_clients):
  """Returns the adjacency matrices of pulls by segment, of 0 and 1.

  Args:
    peers: Collected; int32 `[workers, num_segments, num_replicas]`.
    num_clients: Size of the population, int32 `[]`.

  Returns:
    float32 `[num_segments, workers, workers]`: whether segment s of the second
    worker's model reaches the first; 0 for invalid workers.
  """
  num_workers = tf.shape(peers.values)[0]
  num_segments, num_replicas = peers.values.shape[1:]
  column = tf.transpose(peers.values, [1, 0, 2])
  # The placeholder index lies outside the population.
  column = tf.where(column >= 0, column, num_clients)
  row = tf.repeat(tf.range(num_segments * num_workers), num_replicas)
  asked = tf.scatter_nd(
    tf.stack([row, tf.reshape(column, [-1])], axis=1),
    tf.ones_like(row, tf.float32),
    [num_segments * num_workers, num_clients + 1],
  )
  reached = tf.reshape(
    tf.gather(asked, peers.client_index, axis=1),
    [num_segments, num_workers, num_workers],
  )
  is_valid = tf.cast(peers.is_valid, tf.float32)
  return reached * is_valid * is_valid[:, tf.newaxis]


def draw_peers(
  population: algorithm.Population,
  client_index: int,
  config: GossipConfig,
  seed: int,
  round_num: int,
) -> np.ndarray:
  """Samples a worker's peers for each segment.

  Args:
    population: All workers.
    client_index: Index of the worker.
    config: Numbers of segments and replicas.
    seed: The run's seed.
    round_num: From 1.

  Returns:
    Client indices int32 `[num_segments, num_replicas]`, distinct in a row; -1
    where there are fewer others with examples.
  """
  others = population.clients_with_examples
  others = others[others != client_index]
  generator = seeds.numpy_generator(
    seed, 'gossip_peers', round_num, population.client_ids[client_index]
  )
  order = generator.random((config.num_segments, len(others))).argsort(axis=1)
  drawn = np.full((config.num_segments, config.num_replicas), _NOBODY, np.int32)
  num_drawn = min(config.num_replicas, len(others))
  drawn[:, :num_drawn] = others[order[:, :num_drawn]]
  return drawn


def _build_plan(config, sizes):

  def plan_round(server_state, population, round_num, seed):
    everyone = population.all_clients
    drawn = np.stack(
      [
        draw_peers(population, client_index, config, seed, round_num)
        for client_index in everyone
      ]
    )
    num_pulled = np.count_nonzero(drawn != _NOBODY, axis=(0, 2))
    floats = int(num_pulled @ (np.array(sizes) + 1))
    yield algorithm.PhaseCall(
      'train',
      everyone,
      WorkerInput(Inbox(*map(np.asarray, server_state.inbox)), drawn),
      algorithm.Cost(floats, floats, len(everyone)),
    )

  return plan_round
