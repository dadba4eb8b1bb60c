"""Lowers a phase to one TFF federated computation: its reference meaning."""

from collections import OrderedDict
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import tff_compat
from tff_algos.numerics import trees
from tff_algos.stages import composer

Structure = Any


def build_federated_phase(
  phase: algorithm_lib.Phase, types: composer.PhaseTypes
) -> tff_compat.Computation:
  """Returns a phase as a TFF computation.

  Args:
    phase: The phase.
    types: What `composer.check_phase` returned for it.

  Returns:
    A computation `(<server_state@SERVER, {Clients}@CLIENTS>) ->
    <server_state=S@SERVER, server_metrics=M@SERVER,
    clients={<client_index, client_state>}@CLIENTS,
    client_metrics=<metrics, num_invalid>@SERVER>`. TFF promises no order of
    the clients, so each client's index comes back beside its state.
  """
  server_state_type = tff_compat.to_type(types.server_state)
  clients_type = tff_compat.to_type(types.clients)
  make_message = tff_compat.tensorflow_computation(
    phase.make_message, server_state_type
  )
  work = _build_client_work(
    phase, tff_compat.to_type(types.message), clients_type
  )
  collects = bool(len(work.type_signature.result['collection']))

  @tff_compat.federated_computation(
    tff_compat.at_server(server_state_type), tff_compat.at_clients(clients_type)
  )
  def run_phase(server_state, clients):
    message = tff_compat.federated_broadcast(
      tff_compat.federated_map(make_message, server_state)
    )
    outputs = tff_compat.federated_map(work, (message, clients))
    sums = tff_compat.federated_sum(outputs['sums'])
    finished = [server_state, sums]
    if collects:
      finished.append(_federated_collect(outputs['collection']))
    finished = tff_compat.federated_zip(tuple(finished))
    finish = _build_finish(phase, finished.type_signature.member)
    state, metrics = tff_compat.federated_map(finish, finished)
    return OrderedDict(
      server_state=state,
      server_metrics=metrics,
      clients=outputs['client'],
      client_metrics=OrderedDict(
        metrics=sums['metrics'], num_invalid=sums['num_invalid']
      ),
    )

  return run_phase


def _build_client_work(
  phase: algorithm_lib.Phase,
  message_type: tff_compat.Type,
  clients_type: tff_compat.Type,
) -> tff_compat.Computation:
  """Returns the guarded client work, with this client's part of each sum."""

  @tff_compat.tensorflow_computation(message_type, clients_type)
  def work(message, client):
    outputs = composer.guard_one(
      composer.client_work(phase, message, client), client.client_state
    )
    return OrderedDict(
      sums=composer.partial_sums(phase, outputs),
      collection=composer.collected(
        phase, client.client_index[tf.newaxis], outputs
      ),
      client=OrderedDict(
        client_index=client.client_index,
        client_state=trees.take(outputs.client_state, 0),
      ),
    )

  return work


def _build_finish(
  phase: algorithm_lib.Phase, finished_type: tff_compat.Type
) -> tff_compat.Computation:
  """Returns the server's part: finish the aggregates, update the state."""

  @tff_compat.tensorflow_computation(finished_type)
  def finish(finished):
    server_state, sums, *collection = finished
    return composer.server_update(
      phase, server_state, sums, collection[0] if collection else {}
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
  def no_rows():
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
