"""Lowers a phase to one TFF federated computation, its reference semantics."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, tff_compat
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation_processes, composer, phase_types

# Results of the client half for the server half; all but the first may be
# absent.
_SERVER_PARTS = ('sums', 'collection', 'processed')


class FederatedPhase(NamedTuple):
  """A phase as TFF computations.

  Attributes:
    whole: `(<server_state@SERVER, {Clients}@CLIENTS>) ->
      <server_state=S@SERVER, server_metrics=M@SERVER,
      clients={<client_index, client_state>}@CLIENTS,
      client_metrics=<metrics, num_invalid>@SERVER>`. TFF promises no order of
      the clients, so each client's index comes back beside its state.
    client_half: `(<server_state@SERVER, {Clients}@CLIENTS>) ->
      <sums@SERVER, [collection@SERVER], [processed@SERVER], clients@CLIENTS>`:
      the phase without the server update, for a cohort that is divided among
      several workers. `processed` are the outputs of aggregation processes
      (`aggregation_processes`), which cannot be divided.
    server_half: `<server_state, sums, [collection], [processed]> ->
      <server_state, metrics>`, on tensors: the server update from the added
      partial sums.
  """

  whole: tff_compat.Computation
  client_half: tff_compat.Computation
  server_half: tff_compat.Computation


def build_federated_phases(
  algorithm: algorithm_lib.FederatedAlgorithm, num_clients: int
) -> dict[str, FederatedPhase]:
  """Returns phase name -> the phase as TFF computations.

  >>> import tff_algos
  >>> model = tff_algos.build_model(
  ...   tff_algos.parse_model({'name': 'linear_regression', 'use_bias': False}),
  ...   task='regression',
  ...   input_shape=(4,),
  ...   num_outputs=1,
  ... )
  >>> section = tff_algos.parse_algorithm({'name': 'fed_avg'})
  >>> algorithm = tff_algos.build_algorithm(section, model)
  >>> phases = tff_algos.federated(algorithm, num_clients=2)
  >>> list(phases)
  ['train']
  >>> print(phases['train'].server_half.type_signature.result)
  <<model_weights=<kernel=float32[4,1]>,optimizer_slots=<>>,<>>

  `type_signature` of a computation has its TFF type. Which phases run in a
  round, and on which clients, is decided by `algorithm.plan_round`.

  Args:
    algorithm: The algorithm.
    num_clients: Size of the population, >= 1.

  Raises:
    ConfigError: If `num_clients` is not positive.
    StageTypeError: If two stages of a phase do not fit.
  """
  checks.check_int('num_clients', num_clients, minimum=1)
  types = phase_types.check_algorithm(algorithm, num_clients)
  return {
    name: build_federated_phase(phase, types[name])
    for name, phase in algorithm.phases.items()
  }


def build_federated_phase(
  phase: algorithm_lib.Phase, types: phase_types.PhaseTypes
) -> FederatedPhase:
  """Returns a phase as TFF computations.

  Args:
    phase: The phase.
    types: Result of `phase_types.check_phase` for the phase.
  """
  server_state_type = tff_compat.to_type(types.server_state)
  clients_type = tff_compat.to_type(types.clients)
  client_half = _build_client_half(
    phase,
    tff_compat.to_type(types.message),
    tff_compat.at_server(server_state_type),
    tff_compat.at_clients(clients_type),
  )
  halves = client_half.type_signature.result
  names = [n for n in _SERVER_PARTS if tff_compat.has_field(halves, n)]
  server_half = _build_server_half(
    phase,
    server_state_type,
    OrderedDict((name, halves[name].member) for name in names),
  )

  @tff_compat.federated_computation(
    tff_compat.at_server(server_state_type), tff_compat.at_clients(clients_type)
  )
  def run_phase(
    server_state: tff_compat.Value, clients: tff_compat.Value
  ) -> OrderedDict[str, tff_compat.Value]:
    outputs = client_half(server_state, clients)
    parts = [outputs[name] for name in names]
    state, metrics = tff_compat.federated_map(
      server_half, tff_compat.federated_zip((server_state, *parts))
    )
    return OrderedDict(
      server_state=state,
      server_metrics=metrics,
      clients=outputs['clients'],
      client_metrics=OrderedDict(
        metrics=outputs['sums']['metrics'],
        num_invalid=outputs['sums']['num_invalid'],
      ),
    )

  return FederatedPhase(run_phase, client_half, server_half)


def _build_client_half(
  phase: algorithm_lib.Phase,
  message_type: tff_compat.Type,
  server_state_type: tff_compat.Type,
  clients_type: tff_compat.Type,
) -> tff_compat.Computation:
  """Returns broadcast, client work and aggregation as one computation."""
  make_message = tff_compat.tensorflow_computation(
    phase.make_message, server_state_type.member
  )
  work = _build_client_work(phase, message_type, clients_type.member)
  collects = bool(len(work.type_signature.result['collection']))

  @tff_compat.federated_computation(server_state_type, clients_type)
  def run_clients(
    server_state: tff_compat.Value, clients: tff_compat.Value
  ) -> OrderedDict[str, tff_compat.Value]:
    message = tff_compat.federated_broadcast(
      tff_compat.federated_map(make_message, server_state)
    )
    outputs = tff_compat.federated_map(work, (message, clients))
    halves = OrderedDict(sums=tff_compat.federated_sum(outputs['sums']))
    if collects:
      halves['collection'] = _federated_collect(outputs['collection'])
    processed = aggregation_processes.run(
      phase, server_state, outputs['processed']
    )
    if processed:
      halves['processed'] = tff_compat.federated_zip(processed)
    return OrderedDict(**halves, clients=outputs['client'])

  return run_clients


def _build_client_work(
  phase: algorithm_lib.Phase,
  message_type: tff_compat.Type,
  clients_type: tff_compat.Type,
) -> tff_compat.Computation:
  """Returns the guarded client work, with this client's part of each sum."""
  summing = aggregation_processes.without_processes(phase)

  @tff_compat.tensorflow_computation(message_type, clients_type)
  def work(
    message: Structure, client: composer.Clients
  ) -> OrderedDict[str, Structure]:
    outputs = composer.guard_one(
      composer.client_work(phase, message, client), client.client_state
    )
    return OrderedDict(
      sums=composer.partial_sums(summing, outputs),
      collection=composer.collected(
        phase, client.client_index[tf.newaxis], outputs
      ),
      processed=aggregation_processes.arguments(phase, outputs.result),
      client=OrderedDict(
        client_index=client.client_index,
        client_state=trees.take(outputs.client_state, 0),
      ),
    )

  return work


def _build_server_half(
  phase: algorithm_lib.Phase,
  server_state_type: tff_compat.Type,
  part_types: Mapping[str, tff_compat.Type],
) -> tff_compat.Computation:
  """Returns the server's part: finishes the aggregates, updates the state."""
  names = list(part_types)
  summing = aggregation_processes.without_processes(phase)

  @tff_compat.tensorflow_computation(
    tff_compat.tuple_type([server_state_type, *part_types.values()])
  )
  def finish(parts: Structure) -> tuple[Structure, Structure]:
    server_state, *others = parts
    given = dict(zip(names, others, strict=True))
    aggregates = composer.finish(
      summing, given['sums'], given.get('collection', {})
    )
    return aggregation_processes.server_update(
      phase, server_state, aggregates, given.get('processed', {})
    )

  return finish


def _federated_collect(values: tff_compat.Value) -> tff_compat.Value:
  """Concatenates one-row stacks of all clients at the server, in any order."""
  row_type = values.type_signature.member
  rows = tf.nest.map_structure(
    lambda row: tf.TensorSpec([None, *row.shape[1:]], row.dtype),
    tff_compat.to_specs(row_type),
  )
  rows_type = tff_compat.to_type(rows)

  @tff_compat.tensorflow_computation
  def no_rows() -> Structure:
    return tf.nest.map_structure(
      lambda row: tf.zeros([0, *row.shape[1:]], row.dtype), rows
    )

  def concatenate(first: Structure, second: Structure) -> Structure:
    return tf.nest.map_structure(
      lambda *leaves: tf.concat(leaves, axis=0), first, second
    )

  return tff_compat.federated_aggregate(
    values,
    no_rows(),
    tff_compat.tensorflow_computation(concatenate, rows_type, row_type),
    tff_compat.tensorflow_computation(concatenate, rows_type, rows_type),
    tff_compat.tensorflow_computation(lambda rows: rows, rows_type),
  )
