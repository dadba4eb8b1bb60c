"""Segmented gossip: no server; every worker mixes segments of some peers.

Hu, Jiang and Wang, "Decentralized Federated Learning: A Segmented Gossip
Approach" (2019), arXiv:1908.07782; GossipFL in the comparison of Che et al.,
arXiv:2108.00365.

Round t:
  plan            everybody; each worker draws, for each of S segments, R peers
  client_work     merge: the own model of the last round and what was pulled
                  then; train from there; offer the result
  aggregation     every model is collected: so that peers can pull from it
  server_update   for each worker and segment: the mean of the segment over its
                  R peers by their examples, and what these weigh against its
                  own
So a worker's model after round t is, segment by segment, the mean over itself
and its peers of what they trained in round t. The sum is split: the worker
keeps its own model, and the "server" what was pulled, until the two are needed.

There is no server. The "server state" simulates what lies in the workers'
inboxes (the pulled half of each merge, one model a client), and
`model_weights`, the mean of all merged models by examples: nobody in the system
has it; it serves new users and reports here.

Names: S = num_segments, R = num_replicas. Segments are consecutive entries of
  the flattened model, whose sizes differ by 1 at most.
Readings: peers are drawn anew for each segment, uniformly, without replacement,
  among all others with examples, on the host from (seed, round, worker). A
  worker without examples weighs nothing and only follows. Who drops out sends
  nothing and keeps its model.
Theory: without training and with equal examples, the expected squared distance
  to the mean before shrinks by (1 - R / (N - 1)) / (R + 1) a round, N workers.
Reductions (tested): R = all peers = FedAvg with all clients, at every worker; R
  peers drawn by hand = NumPy.
Cost per worker and round: R (P + S) floats down and as many up (each pulled
segment
  comes with its worker's number of examples), 2 R S messages (a request, an
  answer), one solve. The simulation holds four models a client (its state, its
  inbox, what was collected and merged), and mixes in clients^2 * P operations.

The model served to a client is its merged model; `local_weights` is the one before
merging.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.gossip import segments
from tff_algos.core import algorithm, checks, errors, seeds
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Leaf
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import global_model
from tff_algos.stages.server import peer_models as peers_lib

# In the place of a peer, where there are fewer than `num_replicas`.
_NOBODY = -1


@dataclasses.dataclass(frozen=True)
class GossipConfig:
  """Options of segmented gossip.

  Attributes:
    num_segments: S, from 1 to the model's number of parameters.
    num_replicas: R, >= 1: peers that each segment is pulled from; all others
      where there are fewer.
    loss_scale: Factor on the loss, > 0.
    local_training: How a worker trains.
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
  """What a worker has pulled, or a stack `[num_clients, ...]` of it.

  Attributes:
    pulled: The mean of its peers' models, segment by segment, flat `[P]`; its
      own where it has pulled nothing.
    share: What they weigh beside the own model, in [0, 1], float32
      `[num_segments]`; 0 where it has pulled nothing.
  """

  pulled: Leaf
  share: Leaf


class ServerState(NamedTuple):
  """What is simulated of all workers.

  Attributes:
    model_weights: The mean of all models, for new users and reports.
    inbox: Of each worker, `[num_clients, ...]`.
  """

  model_weights: model_lib.Weights
  inbox: Inbox


class ClientState(NamedTuple):
  """What survives a round at a worker.

  Attributes:
    local_weights: Its model after training, before it is merged.
  """

  local_weights: model_lib.Weights


class WorkerInput(NamedTuple):
  """What the plan tells a worker.

  Attributes:
    inbox: What it has pulled in the last round.
    peers: Whom it pulls from in this one, client indices int32
      `[num_segments, num_replicas]`; -1 for nobody.
  """

  inbox: Inbox
  peers: Leaf


class TrainResult(NamedTuple):
  """What a worker offers, and whom it pulls from.

  Attributes:
    local_weights: Its model after training.
    num_examples: float32 `[]`.
    peers: As of `WorkerInput`.
  """

  local_weights: model_lib.Weights
  num_examples: tf.Tensor
  peers: Leaf


def build_gossip(
  model: model_lib.Model, config: GossipConfig
) -> algorithm.FederatedAlgorithm:
  """Builds segmented gossip for a model of which every worker has one.

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

  return global_model.build_algorithm(
    'gossip',
    model,
    init_server_state=init_server_state,
    # The run's seed: all clients start from one model.
    init_client_state=lambda run_seed, client_seed: ClientState(
      model.initialize(run_seed)
    ),
    phases={'train': _build_training(model, config, sizes)},
    plan_round=_build_plan(config, sizes),
    personalized_weights=merged,
    local_weights=lambda server_state, client_state, client_index: (
      client_state.local_weights
    ),
  )


def _merge(own, inbox, sizes):
  """Returns the mean of the own model and what was pulled, by segment."""
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
    # Its own model is a worker's secret; what it was sent is not.
    uploads={
      'local_weights': lambda message, client_input, result: trees.unflatten(
        client_input.inbox.pulled, spec
      )
    },
  )


def _build_exchange(spec, sizes):
  """Returns the server's update: all pull, and nothing else happens."""

  def exchange(server_state, aggregates):
    sent = aggregates['local_weights']
    num_examples = aggregates['num_examples'].values
    rows = segments.flatten_rows(sent.values)
    is_pulled = _pulls(
      aggregates['peers'], tf.shape(server_state.inbox.share)[0]
    )
    weights = is_pulled * num_examples
    totals = tf.reduce_sum(weights, axis=2)
    is_any = totals[..., tf.newaxis] > 0  # pyright: ignore[reportArgumentType]
    # Who pulls nothing has its own.
    means = tf.where(
      is_any,
      tf.math.divide_no_nan(weights, totals[..., tf.newaxis]),  # pyright: ignore[reportArgumentType]
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
  """Returns who pulls what from whom, 0 or 1.

  Args:
    peers: Collected; int32 `[workers, num_segments, num_replicas]`.
    num_clients: Of the population, int32 `[]`.

  Returns:
    float32 `[num_segments, workers, workers]`: whether segment s of the second
    worker's model reaches the first. Nothing does from or to who is refused.
  """
  num_workers = tf.shape(peers.values)[0]
  num_segments, num_replicas = peers.values.shape[1:]
  column = tf.transpose(peers.values, [1, 0, 2])
  # Nobody is beside the population.
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
  """Returns whom a worker pulls each segment from.

  Args:
    population: All workers.
    client_index: Which one.
    config: How many segments and replicas.
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
