"""TFF learning process (`tff.learning.templates.LearningProcess`) of a phase.

For algorithms of one phase whose clients have neither states nor inputs of
their own and whose server has one global model, such as FedAvg, FedProx and
FedOpt: the caller of `next` samples the clients.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, seeds, tff_compat
from tff_algos.core.structures import Structure
from tff_algos.numerics import index_random
from tff_algos.rounds import (
  aggregation,
  composer,
  extended_state,
  federated,
  phase_types,
)

# A client's batches are joined by so many examples at a time.
_JOINED_EXAMPLES = 1 << 20


class State(NamedTuple):
  """State of the process.

  Attributes:
    server_state: The algorithm's server state.
    round_num: Number of rounds run so far, int32 `[]`.
  """

  server_state: Structure
  round_num: Any


def build_learning_process(
  algorithm: algorithm_lib.FederatedAlgorithm, seed: int = 0
) -> Any:
  """Returns an algorithm as a `tff.learning.templates.LearningProcess`.

  `next(state, datasets)` runs a round on the clients of `datasets`: for each a
  `tf.data.Dataset` of batches `(x [None, *input_shape], y [None,
  *label_shape])`, of which the algorithm's local training makes batches of its
  own. Its metrics are `client` (name -> mean over the cohort), `num_invalid`
  (clients whose result was not finite) and `server`. `get_model_weights`
  returns `tff.learning.models.ModelWeights` in the order of the model's
  weights, for the evaluations of `tff.learning`.

  All clients of a round draw from one seed, that of `seed` and the round: a TFF
  dataset has no client id.

  >>> import tff_algos
  >>> model = tff_algos.build_model(
  ...   tff_algos.parse_model({'name': 'linear_regression', 'use_bias': False}),
  ...   task='regression',
  ...   input_shape=(4,),
  ...   num_outputs=1,
  ... )
  >>> section = tff_algos.parse_algorithm({'name': 'fed_avg'})
  >>> algorithm = tff_algos.build_algorithm(section, model)
  >>> process = tff_algos.learning_process(algorithm)
  >>> print(process.initialize.type_signature)  # doctest: +ELLIPSIS
  ( -> <server_state=<model_weights=<kernel=float32[4,1]>,...>@SERVER)

  Args:
    algorithm: The algorithm; its `plan_round` is not used.
    seed: Seed of initial weights and rounds, >= 0.

  Raises:
    ConfigError: If the algorithm is more than one such phase; names the reason.
  """
  phase = _only_phase(algorithm)
  types = phase_types.types_of(algorithm, phase, num_clients=1)
  run_phase = federated.build_federated_phase(phase, types).whole
  run_seed = seeds.derive_seed(seed, 'initialize')
  round_seed = seeds.derive_seed(seed, phase.name)
  number = tf.TensorSpec([], tf.int32)
  state_type = tff_compat.to_type(State(types.server_state, number))
  examples = types.clients.data
  data_type = tff_compat.sequence_type(
    tff_compat.to_type((examples.x, examples.y))
  )

  @tff_compat.tensorflow_computation
  def initial_state() -> State:
    return State(
      algorithm.init_server_state(tf.constant(run_seed), 1), tf.constant(0)
    )

  @tff_compat.federated_computation
  def initialize() -> tff_compat.Value:
    return tff_compat.federated_eval_at_server(initial_state)

  @tff_compat.tensorflow_computation(tff_compat.to_type(number), data_type)
  def to_client(round_num: tf.Tensor, dataset: Any) -> composer.Clients:
    return composer.Clients(
      client_index=tf.constant(0),
      client_input=(),
      client_state=(),
      data=_read(dataset, examples),
      seed=index_random.fold_in(tf.constant(round_seed), round_num),
    )

  @tff_compat.tensorflow_computation(tff_compat.to_type(number))
  def following(round_num: tf.Tensor) -> tf.Tensor:
    return round_num + 1

  metrics_type = run_phase.type_signature.result['client_metrics']['metrics']

  @tff_compat.tensorflow_computation(metrics_type.member)
  def means(metrics: Structure) -> Structure:
    return OrderedDict(
      (name, tf.math.divide_no_nan(stat.total, stat.weight))
      for name, stat in metrics.items()
    )

  @tff_compat.federated_computation(
    tff_compat.at_server(state_type), tff_compat.at_clients(data_type)
  )
  def run_round(
    state: tff_compat.Value, datasets: tff_compat.Value
  ) -> tff_compat.Value:
    round_num = tff_compat.federated_map(following, state.round_num)
    clients = tff_compat.federated_map(
      to_client, (tff_compat.federated_broadcast(round_num), datasets)
    )
    output = run_phase(state.server_state, clients)
    metrics = OrderedDict(
      client=tff_compat.federated_map(
        means, output['client_metrics']['metrics']
      ),
      num_invalid=output['client_metrics']['num_invalid'],
      server=output['server_metrics'],
    )
    return tff_compat.LearningProcessOutput(
      tff_compat.federated_zip(State(output['server_state'], round_num)),
      tff_compat.federated_zip(metrics),
    )

  names = list(algorithm.cluster_model.weights_spec())
  weights_type = tff_compat.to_type(
    tff_compat.ModelWeights(
      tuple(algorithm.cluster_model.weights_spec().values()), ()
    )
  )

  @tff_compat.tensorflow_computation(state_type)
  def get_model_weights(state: State) -> Any:
    weights = state.server_state.model_weights
    return tff_compat.ModelWeights(tuple(weights[name] for name in names), ())

  @tff_compat.tensorflow_computation(state_type, weights_type)
  def set_model_weights(state: State, weights: Any) -> State:
    named = OrderedDict(zip(names, weights.trainable, strict=True))
    return state._replace(
      server_state=state.server_state._replace(model_weights=named)
    )

  return tff_compat.LearningProcess(
    initialize, run_round, get_model_weights, set_model_weights
  )


def refusal(algorithm: algorithm_lib.FederatedAlgorithm) -> str:
  """Returns why an algorithm is no learning process; empty if it is one."""
  if len(algorithm.phases) > 1:
    return f'has {len(algorithm.phases)} phases ({", ".join(algorithm.phases)})'
  (phase,) = algorithm.phases.values()
  # Before the states: those of a phase that collects may need more clients.
  if tf.nest.flatten(phase.client_input):
    return 'sends each client an input of its own'
  if any(
    isinstance(one, aggregation.Collect) for one in phase.aggregation.values()
  ):
    return 'collects the results of clients one by one'
  server_state, client_state = phase_types.state_specs(algorithm, 1)
  if phase.uses_client_state and tf.nest.flatten(client_state):
    return 'keeps a state at each client'
  larger, _ = phase_types.state_specs(algorithm, 2)
  if tf.nest.flatten(larger) != tf.nest.flatten(server_state):
    return 'keeps values of each client at the server'
  if isinstance(server_state, extended_state.ExtendedState):
    return 'has a state of aggregators or of privacy beside its server state'
  weights = algorithm.cluster_model.weights_spec()
  if getattr(server_state, 'model_weights', None) != weights:
    return 'has no single global model at the server'
  return ''


def _only_phase(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> algorithm_lib.Phase:
  """Returns the phase; raises ConfigError unless it is a simple one."""
  reason = refusal(algorithm)
  if reason:
    raise errors.ConfigError(
      f'algorithm {algorithm.name!r} {reason}, which learning_process '
      'does not take; tff_algos.federated(algorithm, num_clients) has '
      'its phases as TFF computations (docs/tff.md)'
    )
  (phase,) = algorithm.phases.values()
  return phase


def _read(
  dataset: Any, examples: algorithm_lib.ClientData
) -> algorithm_lib.ClientData:
  """Returns the examples of a dataset of batches, with one row at least."""

  def no_rows(spec: tf.Tensor) -> tf.Tensor:
    return tf.zeros([0, *spec.shape[1:]], spec.dtype)

  x, y = (
    dataset.unbatch()
    .batch(_JOINED_EXAMPLES)
    .reduce(
      (no_rows(examples.x), no_rows(examples.y)),
      lambda joined, batch: tuple(
        tf.concat(pair, axis=0) for pair in zip(joined, batch, strict=True)
      ),
    )
  )
  count = tf.shape(y)[0]
  missing = 1 - tf.minimum(count, 1)

  def pad(leaf: tf.Tensor) -> tf.Tensor:
    zeros = tf.zeros([missing, *leaf.shape[1:]], leaf.dtype)
    return tf.concat([leaf, zeros], axis=0)

  mask = tf.concat([tf.ones([count]), tf.zeros([missing])], axis=0)
  return algorithm_lib.ClientData(pad(x), pad(y), mask)
