"""BrainTorrent: serverless peer-to-peer learning with one initiator a round.

Roy, Siddiqui, Pölsterl, Navab and Wachinger, "BrainTorrent: A Peer-to-Peer
Environment for Decentralized Federated Learning" (2019), arXiv:1905.06731; in
the comparison of Che et al., arXiv:2108.00365.

Every client holds a model, its version, and the last fetched version of every
other model. Round 1: all clients train their models in parallel, version 1.
Round t > 1:
  plan            sample one client with examples, the initiator. It pings all
                  others, which answer with their versions; it fetches the
                  models that are newer than the last fetched versions
  client_work     merge: the mean of these models and its own, weighted by
                  examples; train from there; the result is the new model
  aggregation     the model is collected: the next initiator may fetch it
  server_update   the initiator's version is incremented, and its last fetched
                  versions become the current ones

There is no server. The "server state" simulates the answers of the clients: the
latest model of each, its number of examples and its versions. The plan, on the
host, simulates the network: it merges the fetched models into one mean and its
weight. The mean of all clients' latest models, weighted by examples, is for new
users, reports and newcomers of a continued run.

Names: W_i = personalized_weights, v_old of client i = row i of `versions`,
  v_new = its diagonal, a_j = num_examples.
Readings: an initiator reaches all clients. Clients without examples neither
  initiate nor are fetched from, and keep the first model. A round has one
  initiator, so a round of N solves elsewhere corresponds to N rounds here.
Reductions (tested): a merge, and versions over rounds = by hand; a client whose
  versions are current fetches nothing, and trains on from its own model.
Cost of a round t > 1, n models fetched of P parameters among N clients: N - 1
  versions and n (P + 1) floats (each model with its number of examples),
  counted once as sent and once as received; 2 (N - 1) messages (a ping, an
  answer); one solve. Round 1: no float, N solves. The simulation holds two
  models a client, its own and the sent one, and copies a table of N models a
  round.

The model served to a client is its own model after training.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm, carrying, checks
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Leaf
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import local_training as local_training_lib
from tff_algos.stages.client import objectives
from tff_algos.stages.server import client_sampling, global_model
from tff_algos.stages.server import peer_models as peers_lib


@dataclasses.dataclass(frozen=True)
class BrainTorrentConfig:
  """Options of BrainTorrent.

  Attributes:
    loss_scale: Factor on the loss, > 0.
    local_training: Options of local training.
  """

  loss_scale: float = 1.0
  local_training: local_training_lib.LocalTrainingConfig = (
    local_training_lib.LocalTrainingConfig()
  )

  def __post_init__(self):
    checks.check_positive('loss_scale', self.loss_scale)


class ServerState(NamedTuple):
  """Simulated answers of the clients to an initiator.

  Attributes:
    sent: The latest model of each client, `[num_clients, ...]`; the initial
      model before its first training.
    num_examples: Examples of each client, float32 `[num_clients]`; 0 before its
      first training.
    versions: int32 `[num_clients, num_clients]`; `[i, j]` is the last version
      of j's model that i fetched, `[i, i]` the version of its own.
  """

  sent: model_lib.Weights
  num_examples: tf.Tensor
  versions: tf.Tensor


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    personalized_weights: The client's model.
  """

  personalized_weights: model_lib.Weights


class Fetched(NamedTuple):
  """Mean of the models fetched by an initiator, and its weight.

  Attributes:
    mean: Mean of the newer models, weighted by examples, like the model; the
      client's own latest one if there is none.
    share: Weight of the mean beside the own model, in [0, 1], float32 `[]`; 0
      if there is none.
  """

  mean: model_lib.Weights
  share: Leaf


class TrainResult(NamedTuple):
  """Model of a client, available to later initiators.

  Attributes:
    local_weights: The client's model.
    num_examples: The client's number of examples, float32 `[]`.
  """

  local_weights: model_lib.Weights
  num_examples: tf.Tensor


def build_brain_torrent(
  model: model_lib.Model, config: BrainTorrentConfig
) -> algorithm.FederatedAlgorithm:
  """Builds BrainTorrent for a model with one instance per client."""

  def init_server_state(seed, num_clients):
    return ServerState(
      trees.repeat(model.initialize(seed), num_clients),
      tf.zeros([num_clients]),
      tf.zeros([num_clients, num_clients], tf.int32),
    )

  def mean_model(server_state):
    weights = peers_lib.shares(server_state.num_examples)
    return trees.mix(weights, server_state.sent)

  return global_model.build_algorithm(
    'brain_torrent',
    model,
    init_server_state=init_server_state,
    # The run's seed: all clients start from one model.
    init_client_state=lambda run_seed, client_seed: ClientState(
      model.initialize(run_seed)
    ),
    phases={'train': _build_training(model, config)},
    plan_round=_build_plan(model),
    carry=carrying.Carry(
      {
        'sent': carrying.CLIENTS,
        'num_examples': carrying.CLIENTS,
        'versions': carrying.PAIRS,
      },
      newcomer_state=lambda server_state: ClientState(
        tf.nest.map_structure(np.asarray, mean_model(server_state))
      ),
    ),
    global_weights=mean_model,
    personalized_weights=lambda server_state, client_state, client_index: (
      client_state.personalized_weights
    ),
  )


def _build_training(model, config):
  """Returns the phase: merge the fetched models, train, offer the result."""
  objective = objectives.mean_loss(model, config.loss_scale)

  def train(message, fetched, client_state, data, seed):
    del message
    weights, loss = local_training_lib.train(
      objective,
      peers_lib.move(client_state.personalized_weights, *fetched),
      data,
      seed,
      config.local_training,
    )
    return algorithm.ClientOutput(
      TrainResult(weights, tf.reduce_sum(data.mask)),
      ClientState(weights),
      OrderedDict(loss=loss),
    )

  return algorithm.Phase(
    name='train',
    make_message=lambda server_state: (),
    client_work=train,
    aggregation={field: aggregation.Collect() for field in TrainResult._fields},
    server_update=_update_versions,
    client_input=Fetched(model.weights_spec(), tf.TensorSpec([], tf.float32)),
    # A client's own model is private; the fetched models are not.
    uploads={'local_weights': lambda message, fetched, result: fetched.mean},
  )


def _update_versions(server_state, aggregates):
  """Returns the server state with the new models and versions."""
  models, examples = aggregates['local_weights'], aggregates['num_examples']
  versions = server_state.versions
  current = tf.linalg.diag_part(versions)
  seen = tf.gather(versions, models.client_index)
  is_new = (current > seen) & models.is_valid[:, tf.newaxis]
  num_clients = tf.shape(current)[0]
  own = tf.one_hot(models.client_index, num_clients, dtype=tf.int32)
  state = ServerState(
    aggregation.write_rows(server_state.sent, models),
    aggregation.write_rows(server_state.num_examples, examples),
    aggregation.write_rows(versions, models._replace(values=current + own)),
  )
  # In the first round there is no initiator.
  num_messages = tf.where(tf.reduce_any(current > 0), 2 * (num_clients - 1), 0)
  _, distance = peers_lib.consensus(state.sent, state.num_examples)
  return state, OrderedDict(
    consensus_distance=distance,
    num_fetched=tf.reduce_sum(tf.cast(is_new, tf.int32)),
    num_messages=num_messages,
  )


def fetch(
  server_state: ServerState, client_index: int, num_examples: float
) -> tuple[Fetched, int]:
  """Returns the mean of a client's fetched models, and their number.

  Args:
    server_state: The server state, NumPy.
    client_index: Index of the initiator.
    num_examples: The initiator's number of examples, > 0.
  """
  versions = np.asarray(server_state.versions)
  is_newer = np.diagonal(versions) > versions[client_index]
  weights = np.asarray(server_state.num_examples)[is_newer]
  total = weights.sum(dtype=np.float64)
  if not total:
    own = algorithm.take_rows(server_state.sent, client_index)
    return Fetched(own, np.float32(0)), 0
  mean = tf.nest.map_structure(
    lambda leaf: np.tensordot(
      weights / total, np.asarray(leaf)[is_newer], axes=1
    ).astype(np.float32),
    server_state.sent,
  )
  share = np.float32(total / (total + num_examples))
  return Fetched(mean, share), len(weights)


def _build_plan(model):
  num_parameters = trees.num_entries(model.weights_spec())

  def plan_round(server_state, population, round_num, seed):
    if not len(population.clients_with_examples):
      return
    # In the first round all train, in the others one.
    drawn = client_sampling.draw_cohort(
      population, int(round_num > 1), seed, round_num
    )
    fetched, counts = zip(
      *(
        fetch(server_state, index, population.num_examples[index])
        for index in drawn
      ),
      strict=True,
    )
    floats = sum(counts) * (num_parameters + 1)
    if round_num > 1:
      floats += population.num_clients - 1
    yield algorithm.PhaseCall(
      'train',
      drawn,
      tf.nest.map_structure(lambda *leaves: np.stack(leaves), *fetched),
      algorithm.Cost(floats, floats, len(drawn)),
    )

  return plan_round
