"""Composes the stages of a phase into the functions that runtimes execute.

    server_state@SERVER          clients@CLIENTS = <index, input, state, data,
        |                            |                                  seed>
    make_message                     |
        |----- broadcast ----------->|
        |                       client_work, guarded
        |<---- sum | collect --------|------> client state, back at CLIENTS
    finish the aggregates            |
        |                            |
    server_update                    |
        v                            v
    <server_state, server_metrics>@SERVER, <index, state>@CLIENTS,
    client_metrics@SERVER

Every runtime uses these functions, so a runtime decides only on which device,
and for how many clients at a time, the stages run.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation


class Clients(NamedTuple):
  """Arguments of client work at the clients: one client's, or the cohort's.

  The values of one client, or stacks `[cohort, ...]`.

  Attributes:
    client_index: Position in the population, int32.
    client_input: Structure as in `Phase.client_input`.
    client_state: The client's state; `()` where the phase uses none.
    data: The client's examples.
    seed: int32 `[2]`.
  """

  client_index: Structure
  client_input: Structure
  client_state: Structure
  data: algorithm_lib.ClientData
  seed: Structure


class GuardedOutput(NamedTuple):
  """Stacked outputs of clients after replacement of NaN and infinity.

  Attributes:
    result: field -> values; zeros where a client's own result was not finite.
    client_state: The new state, or the old one if the result was not finite.
    metrics: name -> MeanStat; zeros if they or the result were not finite.
    is_valid: bool `[clients]`, whether the client's own result was finite.
  """

  result: Mapping[str, Structure]
  client_state: Structure
  metrics: Mapping[str, Structure]
  is_valid: tf.Tensor


def as_fields(result: Structure) -> OrderedDict[str, Structure]:
  """Returns a NamedTuple or mapping as field -> value."""
  fields = result._asdict() if hasattr(result, '_asdict') else result
  return OrderedDict(fields)


def client_work(
  phase: algorithm_lib.Phase, message: Structure, client: Clients
) -> algorithm_lib.ClientOutput:
  """Runs a phase's client work for one client; `guard` its stacked outputs."""
  output = phase.client_work(
    message, client.client_input, client.client_state, client.data, client.seed
  )
  return with_fields(output)


def with_fields(
  output: algorithm_lib.ClientOutput,
) -> algorithm_lib.ClientOutput:
  """Returns an output whose result and metrics are field -> value."""
  return algorithm_lib.ClientOutput(
    as_fields(output.result), output.client_state, OrderedDict(output.metrics)
  )


def guard(
  outputs: algorithm_lib.ClientOutput,
  old_states: Structure,
  is_rare: bool = True,
) -> GuardedOutput:
  """Replaces non-finite results, states and metrics in a stack of outputs.

  A client whose result or new state is not finite keeps its old state and
  contributes zeros: it is in no sum, no mean and no metric. A client whose
  metrics alone are not finite (the loss of a NaN example, say) is in no metric.

  Args:
    outputs: Outputs of `client_work`, stacked on axis 0.
    old_states: The old client states, stacked.
    is_rare: Whether nearly always all are valid; then no model is copied.
  """
  kept = (outputs.result, outputs.client_state)
  num_clients = tf.shape(tf.nest.flatten(kept)[0])[0]
  is_valid = trees.finite_rows(kept, num_clients)
  is_measured = is_valid & trees.finite_rows(outputs.metrics, num_clients)

  def replace() -> Structure:
    zeros = trees.zeros_like(outputs.result)
    return trees.select_rows(is_valid, kept, (zeros, old_states))

  result, states = (
    tf.cond(tf.reduce_all(is_valid), lambda: kept, replace)
    if is_rare
    else replace()
  )
  return GuardedOutput(
    result=result,
    client_state=states,
    metrics=trees.select_rows(
      is_measured, outputs.metrics, trees.zeros_like(outputs.metrics)
    ),
    is_valid=is_valid,
  )


def guard_one(
  output: algorithm_lib.ClientOutput, old_state: Structure
) -> GuardedOutput:
  """Returns `guard` of a stack of one client, for one-by-one runtimes."""
  return guard(
    *tf.nest.map_structure(
      lambda leaf: tf.expand_dims(leaf, 0), (output, old_state)
    )
  )


def aggregate(
  phase: algorithm_lib.Phase,
  client_index: tf.Tensor,
  outputs: algorithm_lib.ClientOutput,
  old_states: Structure,
  is_real: tf.Tensor | None = None,
) -> tuple[OrderedDict[str, Structure], Structure, Structure]:
  """Guards a stack of outputs and reduces it to the results of the block.

  Args:
    phase: The phase.
    client_index: Positions in the population, int32 `[clients]`.
    outputs: Outputs of `client_work`, stacked on axis 0.
    old_states: The old client states, stacked.
    is_real: False for a row that only fills the stack, bool `[clients]`: it is
      in no sum, and the caller drops its collected fields and its state. None
      if all are real.

  Returns:
    `partial_sums`, `collected` and the new client states of the guarded stack.
  """

  def reduce(
    guarded: GuardedOutput,
  ) -> tuple[OrderedDict[str, Structure], Structure, Structure]:
    return (
      partial_sums(phase, guarded),
      collected(phase, client_index, guarded),
      guarded.client_state,
    )

  if is_real is not None:
    guarded = guard(outputs, old_states)
    summed = (guarded.result, guarded.metrics)
    result, metrics = trees.select_rows(
      is_real, summed, trees.zeros_like(summed)
    )
    return reduce(
      GuardedOutput(
        result,
        guarded.client_state,
        metrics,
        guarded.is_valid | tf.logical_not(is_real),
      )
    )
  everyone = tf.ones_like(client_index, tf.bool)
  reduced = reduce(GuardedOutput(*outputs, everyone))
  sums, _, states = reduced
  # A non-finite value makes its sum non-finite: nearly always it is enough to
  # inspect the sums, without a pass over every client's model, and what is in
  # no sum: states, collected fields, fields without an aggregator.
  summed = {
    leaf.ref()
    for field, aggregator in phase.aggregation.items()
    if not isinstance(aggregator, aggregation.Collect)
    for leaf in tf.nest.flatten(outputs.result[field])
  }
  others = [
    leaf
    for leaf in tf.nest.flatten((states, outputs.result))
    if leaf.ref() not in summed
  ]
  # One operation to skip instead of all operations of the branch.
  reduce_guarded = tf.function(
    lambda: reduce(guard(outputs, old_states, is_rare=False)),
    autograph=False,
    experimental_attributes={'_noinline': True},
  )
  return tf.cond(
    trees.all_finite((sums, others)),
    lambda: reduced,
    reduce_guarded,
  )


def partial_sums(
  phase: algorithm_lib.Phase, outputs: GuardedOutput
) -> OrderedDict[str, Structure]:
  """Returns the partial sums of a stack of clients.

  Args:
    phase: The phase.
    outputs: Guarded outputs, stacked on axis 0.

  Returns:
    The partial sums of the summing aggregators, of the metrics
    (`'metrics'`) and of the invalid clients (`'num_invalid'`).
  """
  fields = OrderedDict(
    (field, aggregator.partial_sum(outputs.result, field))
    for field, aggregator in phase.aggregation.items()
    if not isinstance(aggregator, aggregation.Collect)
  )
  return OrderedDict(
    fields=fields,
    metrics=aggregation.Sum().partial_sum(
      {'metrics': outputs.metrics}, 'metrics'
    ),
    num_invalid=tf.reduce_sum(1 - tf.cast(outputs.is_valid, tf.int32)),
  )


def collected(
  phase: algorithm_lib.Phase, client_index: tf.Tensor, outputs: GuardedOutput
) -> Structure:
  """Returns the collected fields of a stack of clients.

  Returns:
    An empty mapping if the phase collects no field.
  """
  values = OrderedDict(
    (field, outputs.result[field])
    for field, aggregator in phase.aggregation.items()
    if isinstance(aggregator, aggregation.Collect)
  )
  if not values:
    return OrderedDict()
  return OrderedDict(
    values=values, client_index=client_index, is_valid=outputs.is_valid
  )


def finish(
  phase: algorithm_lib.Phase,
  sums: Mapping[str, Structure],
  collection: Structure,
) -> OrderedDict[str, Structure]:
  """Returns field -> aggregate of a cohort.

  Args:
    phase: The phase.
    sums: `partial_sums`, added over the cohort.
    collection: `collected`, concatenated over the cohort in any order.
  """
  aggregates: OrderedDict[str, Structure] = OrderedDict()
  if collection:
    order = tf.argsort(collection['client_index'], stable=True)
    collection = tf.nest.map_structure(
      lambda leaf: tf.gather(leaf, order), collection
    )
  for field, aggregator in phase.aggregation.items():
    if isinstance(aggregator, aggregation.Collect):
      aggregates[field] = aggregation.Collected(
        collection['values'][field],
        collection['client_index'],
        collection['is_valid'],
      )
    else:
      aggregates[field] = aggregator.finish(sums['fields'][field])
  return aggregates


def server_update(
  phase: algorithm_lib.Phase,
  server_state: Structure,
  sums: Mapping[str, Structure],
  collection: Structure,
) -> tuple[Structure, Structure]:
  """Finishes the aggregates and runs the phase's server update.

  Args:
    phase: The phase.
    server_state: The old server state.
    sums: As of `finish`.
    collection: As of `finish`.

  Returns:
    The new server state and the server metrics.
  """
  return phase.server_update(server_state, finish(phase, sums, collection))
