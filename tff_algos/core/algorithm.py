"""The contract: what an algorithm is, and what a round is made of.

An algorithm says *what* happens at the server and at a client, as pure
functions on tensors, and *who* takes part when. It knows no runtime, no
data set, no file and no clock. A `Phase` is one communication round:

  server_state --make_message--> message                        (broadcast)
  message, client_input, client_state, data, seed
               --client_work---> result, client_state, metrics  (each client)
  results      --aggregation---> aggregate                      (sum or collect)
  server_state, aggregate
               --server_update-> server_state, metrics          (server)

`rounds.federated` lowers a phase to one TFF federated computation, which is
its reference meaning; every runtime agrees with it.
"""

import dataclasses
import types
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Array, Structure

# Parts a phase's name from the period in which it is that phase
# (`rounds.periods`).
PERIOD_MARK = '@'


def phase_purpose(name: str) -> str:
  """Returns a phase's name in the first period: draws and metrics go by it."""
  return name.partition(PERIOD_MARK)[0]


class ClientData(NamedTuple):
  """One client's examples, dense and padded.

  Every stage must give the same result whatever the capacity: padding rows
  have mask 0, and what else they hold means nothing (zeros, or a real row once
  more; NaN only where a real row has it). There is always a row: for some of
  its operations TensorFlow has no gradient on none.

  A runtime may give a client anything with these attributes and `take`, such
  as a range of rows of a tensor that holds the whole split. What `take` returns
  also has `with_x`.

  Attributes:
    x: Features, `[capacity, ...]`, float32, or int32 ids of tokens.
    y: Labels, `[capacity, *label_shape]` of the model, int32 (classification)
      or float32 (regression).
    mask: 1 for a real example and 0 for padding, `[capacity]`, float32.
  """

  x: tf.Tensor
  y: tf.Tensor
  mask: tf.Tensor

  def take(self, positions: tf.Tensor, mask: tf.Tensor) -> 'ClientData':
    """Returns some rows, such as a batch.

    Args:
      positions: int32 `[n]`, below the capacity.
      mask: Of the result, `[n]`.
    """
    return ClientData(
      tf.gather(self.x, positions), tf.gather(self.y, positions), mask
    )

  def with_x(self, x: tf.Tensor) -> 'ClientData':
    """Returns the same examples with other features, as many."""
    return self._replace(x=x)


class ClientOutput(NamedTuple):
  """What a client's work returns.

  Attributes:
    result: What is uploaded; its fields are those of `Phase.aggregation`.
    client_state: The state that the client keeps.
    metrics: name -> `metrics.statistics.MeanStat`; summed over clients.
  """

  result: Structure
  client_state: Structure
  metrics: Mapping[str, Structure]


class ClientWork(Protocol):
  """What a client does in a phase: a pure function, traced once.

  Stages call their parameters what their values are to them, such as
  `cluster_models` for the message; so these are given by position.
  """

  def __call__(
    self,
    message: Structure,
    client_input: Structure,
    client_state: Structure,
    data: ClientData,
    seed: tf.Tensor,
    /,
  ) -> ClientOutput:
    """Returns the upload, the new client state and the metrics of one client.

    Args:
      message: What `Phase.make_message` returned.
      client_input: Of the structure of `Phase.client_input`.
      client_state: Of this client; `()` if the phase uses none.
      data: The client's examples.
      seed: int32 `[2]`; of run, phase, round and client.
    """
    ...


class ServerUpdate(Protocol):
  """What the server makes of the aggregates of a phase: a pure function."""

  def __call__(
    self, server_state: Structure, aggregates: Mapping[str, Structure], /
  ) -> tuple[Structure, Structure]:
    """Returns the new server state and the metrics, any structure of tensors.

    Args:
      server_state: The state before.
      aggregates: Field of the result -> what its aggregator made of it.
    """
    ...


class Phase(NamedTuple):
  """One kind of communication round; every function is pure.

  Attributes:
    name: Key of the phase in `FederatedAlgorithm.phases`.
    make_message: ServerState -> ServerMessage, broadcast to the cohort.
    client_work: What each client of the cohort does.
    aggregation: field of the result -> aggregator of `rounds.aggregation`.
    server_update: What the server makes of the aggregates.
    client_input: One client's input as a structure of `tf.TensorSpec`.
    uses_client_state: False if `client_work` neither reads nor changes the
      client state; it then gets and returns `()`, and no state is moved.
    uploads: What a client that lies would lie about (`adversaries.attacks`): a
      field of the result, or else of the client state, that is a model or an
      update -> (message, client input, result) -> the model that the client
      started from; zeros for an update.
  """

  name: str
  make_message: Callable[[Structure], Structure]
  client_work: ClientWork
  aggregation: Mapping[str, Any]
  server_update: ServerUpdate
  client_input: Structure = ()
  uses_client_state: bool = True
  uploads: Mapping[str, Callable[..., Structure]] = types.MappingProxyType({})


class Cost(NamedTuple):
  """What one phase call costs, summed over its clients.

  Attributes:
    downlink_floats: Numbers sent to clients.
    uplink_floats: Numbers sent by clients.
    local_solves: Local optimisation problems that were solved.
  """

  downlink_floats: int = 0
  uplink_floats: int = 0
  local_solves: int = 0


@dataclasses.dataclass(frozen=True)
class PhaseCall:
  """A phase to run now, and who takes part in it.

  Attributes:
    phase: Name of the phase.
    client_indices: Positions in the population, int32 `[cohort]`, distinct.
    client_inputs: Structure like `Phase.client_input` with a leading cohort
      axis, of NumPy arrays.
    cost: What the call costs by the algorithm's own accounting.

  Raises:
    StageTypeError: If a client is named twice.
  """

  phase: str
  client_indices: Array
  client_inputs: Structure
  cost: Cost

  @property
  def purpose(self) -> str:
    """Returns `phase_purpose` of its phase."""
    return phase_purpose(self.phase)

  def __post_init__(self) -> None:
    indices, counts = np.unique(self.client_indices, return_counts=True)
    if len(indices) < len(self.client_indices):
      raise errors.StageTypeError(
        f'phase {self.phase!r}: the plan names client_index '
        f'{indices[counts > 1][0]} more than once; client_indices must be '
        'distinct. A client that is drawn twice takes part once: let its '
        'client_input say what it weighs'
      )


class Population(NamedTuple):
  """All clients that the run may train on.

  Attributes:
    client_ids: Ids; a client's index is its position here.
    num_examples: Training examples of each client, int64 `[num_clients]`.
  """

  client_ids: tuple[str, ...]
  num_examples: Array

  @property
  def num_clients(self) -> int:
    """Returns the number of clients."""
    return len(self.client_ids)

  @property
  def all_clients(self) -> Array:
    """Returns the indices of all clients, int32 `[num_clients]`."""
    return np.arange(self.num_clients, dtype=np.int32)

  @property
  def clients_with_examples(self) -> Array:
    """Returns their indices, int32, ascending."""
    return np.flatnonzero(self.num_examples).astype(np.int32)


# Yields the phase calls of one round. Each yield evaluates to the server state
# after that call, so that a plan may depend on what a phase has just learned.
RoundPlan = Generator[PhaseCall, Structure, None]

# (ServerState, ClientState, client index int32 `[]`) -> that client's weights.
WeightsOfClient = Callable[[Structure, Structure, tf.Tensor], Structure]


class Newcomers(NamedTuple):
  """How a client that was not trained on gets a model of its own.

  It fits its membership, and nothing else, on its training examples.

  Attributes:
    fit: (ServerState, ClientData, seed int32 `[2]`) -> `[num_clusters]`
      float32.
    weights: (ServerState, membership `[num_clusters]`) -> weights of
      `FederatedAlgorithm.personalized_model`.
  """

  fit: Callable[[Structure, ClientData, tf.Tensor], tf.Tensor]
  weights: Callable[[Structure, tf.Tensor], Structure]


@dataclasses.dataclass(frozen=True, eq=False)
class FederatedAlgorithm:
  """An algorithm, whole: states, phases, plan, and the models that it serves.

  Attributes:
    name: Its key in the registry.
    num_clusters: Number of cluster models, >= 1.
    init_server_state: (seed int32 `[2]`, num_clients) -> ServerState.
    init_client_state: (run seed int32 `[2]`, client seed int32 `[2]`) ->
      ClientState of a client that never took part; `()` if there is none. The
      run seed is the same for all clients.
    phases: name -> Phase.
    plan_round: (ServerState of NumPy arrays, Population, round_num, base seed)
      -> RoundPlan. `round_num` counts from 1.
    cluster_model: The functional model that serves with cluster weights.
    cluster_weights: ServerState -> weights stacked over clusters,
      `[num_clusters, ...]`.
    personalized_model: The functional model that serves one known client; may
      differ from `cluster_model` (a mixture, say).
    personalized_weights: (ServerState, ClientState, client index int32 `[]`)
      -> weights of `personalized_model` for that client.
    membership: (ServerState, ClientState, client index int32 `[]`) ->
      `[num_clusters]` float32, how far the client belongs to each cluster.
      Need not sum to 1; its largest entry names the client's cluster.
    local_weights: As `personalized_weights`, but of `cluster_model`: what the
      client trained itself and uploaded, where that is another model than the
      personalized one. It is evaluated and serves nobody; None for none.
    newcomers: How unseen clients are personalized; None if only cluster models
      serve them.
  """

  name: str
  num_clusters: int
  init_server_state: Callable[[tf.Tensor, int], Structure]
  init_client_state: Callable[[tf.Tensor, tf.Tensor], Structure]
  phases: Mapping[str, Phase]
  plan_round: Callable[[Structure, Population, int, int], RoundPlan]
  cluster_model: model_lib.Model
  cluster_weights: Callable[[Structure], Structure]
  personalized_model: model_lib.Model
  personalized_weights: WeightsOfClient
  membership: Callable[[Structure, Structure, tf.Tensor], tf.Tensor]
  local_weights: WeightsOfClient | None = None
  newcomers: Newcomers | None = None
