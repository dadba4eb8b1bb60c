"""Contract of federated algorithms: `Phase` and `FederatedAlgorithm`.

An algorithm defines the computations of server and clients as pure functions
on tensors, and the plan by which clients are sampled. It depends on no runtime,
dataset, file or clock. A `Phase` is one communication round:

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

from tff_algos.core import carrying, errors, rich_repr
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Array, Leaf, Structure

# Separates a phase's name from the number of its period (`rounds.periods`).
PERIOD_MARK = '@'


def phase_purpose(name: str) -> str:
  """Returns a phase's name in the first period: key of draws and metrics."""
  return name.partition(PERIOD_MARK)[0]


def take_rows(structure: Structure, rows: Array | slice | int) -> Structure:
  """Returns rows of the leaves of a structure, as NumPy arrays."""
  return tf.nest.map_structure(lambda leaf: np.asarray(leaf)[rows], structure)


class ClientData(NamedTuple):
  """One client's examples, dense and padded.

  Every stage must give the same result for any capacity: padding rows have mask
  0, and their features and labels are ignored (zeros, or copies of a real row;
  NaN only where a real row has it). There is at least one row, because some
  TensorFlow operations have no gradient on empty inputs.

  A runtime may pass any object with these attributes and `take`, such as a
  range of rows of a tensor that holds the whole split. The result of `take`
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
      mask: Mask of the result, `[n]`.
    """
    return ClientData(
      tf.gather(self.x, positions), tf.gather(self.y, positions), mask
    )

  def with_x(self, x: tf.Tensor) -> 'ClientData':
    """Returns the same examples with their features replaced by `x`."""
    return self._replace(x=x)


class ClientOutput(NamedTuple):
  """Output of client work: upload, new client state, metrics.

  Attributes:
    result: The upload; its fields are those of `Phase.aggregation`.
    client_state: The new state of the client.
    metrics: name -> `numerics.statistics.MeanStat`; summed over clients.
  """

  result: Structure
  client_state: Structure
  metrics: Mapping[str, Structure]


class ClientWork(Protocol):
  """Client computation of a phase: a pure function, traced once.

  Arguments are passed by position, because stages name their parameters by
  content, such as `cluster_models` for the message.
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
      message: Result of `Phase.make_message`.
      client_input: Structure as in `Phase.client_input`.
      client_state: State of this client; `()` if the phase uses none.
      data: The client's examples.
      seed: int32 `[2]`; derived from run, phase, round and client.
    """
    ...


class ServerUpdate(Protocol):
  """Server update of a phase from its aggregates: a pure function."""

  def __call__(
    self, server_state: Structure, aggregates: Mapping[str, Structure], /
  ) -> tuple[Structure, Structure]:
    """Returns the new server state and the metrics, any structure of tensors.

    Args:
      server_state: The server state before the update.
      aggregates: Field of the result -> its aggregate.
    """
    ...


class Phase(NamedTuple):
  """One kind of communication round; every function is pure.

  Attributes:
    name: Key of the phase in `FederatedAlgorithm.phases`.
    make_message: ServerState -> ServerMessage, broadcast to the cohort.
    client_work: Computation of each client of the cohort.
    aggregation: field of the result -> aggregator of `rounds.aggregation`.
    server_update: Update of the server state from the aggregates.
    client_input: One client's input as a structure of `tf.TensorSpec`.
    uses_client_state: False if `client_work` neither reads nor changes the
      client state; it then gets and returns `()`, and no state is moved.
    has_dropout: False if no client drops out of it in simulated dropout: a
      measurement of all clients, or a step that the plan cannot do without.
    uploads: Fields that a Byzantine client falsifies (`adversaries.attacks`): a
      field of the result, or else of the client state, that is a model or an
      update -> (message, client input, result) -> the model from which the
      client started, or another that the server sent where no message has
      that one (FedSoft's `start='own'`); zeros for an update.
  """

  name: str
  make_message: Callable[[Structure], Structure]
  client_work: ClientWork
  aggregation: Mapping[str, Any]
  server_update: ServerUpdate
  client_input: Structure = ()
  uses_client_state: bool = True
  has_dropout: bool = True
  uploads: Mapping[str, Callable[..., Structure]] = types.MappingProxyType({})


class Cost(NamedTuple):
  """Communication and computation cost of one phase call, over its clients.

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
  """One execution of a phase: its cohort, client inputs and cost.

  Attributes:
    phase: Name of the phase.
    client_indices: Positions in the population, int32 `[cohort]`, distinct.
    client_inputs: Structure like `Phase.client_input` with a leading cohort
      axis, of NumPy arrays.
    cost: What the call costs by the algorithm's own accounting.

  Raises:
    StageTypeError: If a client index occurs twice.
  """

  phase: str
  client_indices: Array
  client_inputs: Structure
  cost: Cost

  @property
  def purpose(self) -> str:
    """Returns `phase_purpose` of the phase."""
    return phase_purpose(self.phase)

  def of(self, rows: Array | slice) -> 'PhaseCall':
    """Returns the call of some of its clients, at the cost of all.

    Args:
      rows: Their positions in the cohort, each once, or a mask of it.
    """
    return dataclasses.replace(
      self,
      client_indices=self.client_indices[rows],
      client_inputs=take_rows(self.client_inputs, rows),
    )

  def __post_init__(self) -> None:
    indices, counts = np.unique(self.client_indices, return_counts=True)
    if len(indices) < len(self.client_indices):
      raise errors.StageTypeError(
        f'phase {self.phase!r}: the plan contains client_index '
        f'{indices[counts > 1][0]} more than once; client_indices must be '
        'distinct. A client that is sampled twice takes part once: put its '
        'weight into its client_input'
      )


class Population(NamedTuple):
  """The training population: ids and example counts of all clients.

  Attributes:
    client_ids: Ids; a client's index is its position here.
    num_examples: Training examples of each client, int64 `[num_clients]`.
    shards: Shard of the dataset with each client's examples, int
      `[num_clients]`; None of clients that are in no shard.
    is_available: Whether each client may take part in the round, bool
      `[num_clients]`; True for all.
  """

  client_ids: tuple[str, ...]
  num_examples: Array
  shards: Array | None = None
  is_available: Array | bool = True

  @property
  def num_clients(self) -> int:
    """Returns the number of clients."""
    return len(self.client_ids)

  @property
  def all_clients(self) -> Array:
    """Returns the indices of all clients, int32 `[num_clients]`."""
    return np.arange(self.num_clients, dtype=np.int32)

  @property
  def available_examples(self) -> Array:
    """Returns `num_examples`, 0 for clients that are not available."""
    return np.where(self.is_available, self.num_examples, 0)

  @property
  def clients_with_examples(self) -> Array:
    """Returns the available clients with examples, int32, ascending."""
    return np.flatnonzero(self.available_examples).astype(np.int32)


# Yields the phase calls of one round. Each yield evaluates to the server state
# after that call, so that a plan may depend on results of the same round.
RoundPlan = Generator[PhaseCall, Structure, None]

# (ServerState, ClientState, client index int32 `[]`) -> that client's weights.
WeightsOfClient = Callable[[Structure, Structure, Leaf], Structure]


class Newcomers(NamedTuple):
  """Personalization of clients outside the training population.

  A newcomer fits its membership on its training examples; models are frozen.

  Attributes:
    fit: (ServerState, ClientData, seed int32 `[2]`) -> `[num_clusters]`
      float32.
    weights: (ServerState, membership `[num_clusters]`) -> weights of
      `FederatedAlgorithm.personalized_model`.
  """

  fit: Callable[[Structure, ClientData, tf.Tensor], tf.Tensor]
  weights: Callable[[Structure, tf.Tensor], Structure]


class Account(Protocol):
  """Account of a budget that training spends, such as that of privacy."""

  def metrics(self, server_state: Structure, /) -> Mapping[str, float]:
    """Returns what is spent after a round, as metrics of that round."""
    ...

  def is_spent(self, server_state: Structure, /) -> bool:
    """Returns whether training must end: another round could exceed it."""
    ...


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FederatedAlgorithm(rich_repr.Described):
  """A federated algorithm: states, phases, round plan, served models.

  Attributes:
    name: Key of the algorithm in the registry.
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
      `[num_clusters]` float32, degree of membership in each cluster. Need not
      sum to 1; the largest entry determines the client's cluster.
    carry: How its states move to another population, for runs that continue
      an earlier one.
    local_weights: As `personalized_weights`, but of `cluster_model`: the
      locally trained and uploaded model, where it differs from the personalized
      one. For evaluation alone, never served; None for none.
    newcomers: Personalization of unseen clients; None if only cluster models
      serve them.
    account: Account of a budget, kept in the server state; None for none.
    serves_global: Whether the personalized model of every client is the only
      cluster model, so that an evaluation scores it once.
  """

  name: str
  num_clusters: int
  init_server_state: Callable[[Leaf, int], Structure]
  init_client_state: Callable[[tf.Tensor, tf.Tensor], Structure]
  phases: Mapping[str, Phase]
  plan_round: Callable[[Structure, Population, int, int], RoundPlan]
  cluster_model: model_lib.Model
  cluster_weights: Callable[[Structure], Structure]
  personalized_model: model_lib.Model
  personalized_weights: WeightsOfClient
  membership: Callable[[Structure, Structure, tf.Tensor], tf.Tensor]
  carry: carrying.Carry
  local_weights: WeightsOfClient | None = None
  newcomers: Newcomers | None = None
  account: Account | None = None
  serves_global: bool = False

  def description(self) -> tuple[str, Mapping[str, object]]:
    """Returns the name, the number of clusters and the phases."""
    return f'Algorithm {self.name!r}', {
      'clusters': self.num_clusters,
      'phases': ', '.join(self.phases),
      'model': f'{self.cluster_model.name}, {self.cluster_model.task}',
    }
