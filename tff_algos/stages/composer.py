"""Joins the stages of a phase: checks that they fit, and lowers them to TFF.

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

Every runtime uses the functions of this module, so a runtime decides only
where and how many clients at a time the stages run.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.stages import aggregation

Structure = Any


class Clients(NamedTuple):
  """What the clients of a cohort bring to a phase.

  One client's value, or a stack `[cohort, ...]` of them.

  Attributes:
    client_index: Position in the population, int32.
    client_input: Like `Phase.client_input`.
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
  """Clients' outputs, stacked, in which nothing is NaN or infinite.

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


class PhaseTypes(NamedTuple):
  """The types of a phase as structures of `tf.TensorSpec`.

  Attributes:
    server_state: Of the server state.
    clients: Of one client, `Clients`.
    message: What is broadcast.
    output: One client's `ClientOutput`, its result as field -> value.
  """

  server_state: Structure
  clients: Clients
  message: Structure
  output: algorithm_lib.ClientOutput


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
  return algorithm_lib.ClientOutput(
    as_fields(output.result), output.client_state, OrderedDict(output.metrics)
  )


def guard(
  outputs: algorithm_lib.ClientOutput, old_states: Structure
) -> GuardedOutput:
  """Takes out of a stack of outputs what is NaN or infinite.

  A client whose result or new state is not finite keeps its old state and
  contributes zeros: it is in no sum, no mean and no metric. One whose metrics
  alone are not finite (the loss of a NaN example, say) is in no metric.

  Args:
    outputs: What `client_work` returned, stacked on axis 0.
    old_states: The client states before, stacked.
  """
  kept = (outputs.result, outputs.client_state)
  num_clients = tf.shape(tf.nest.flatten(kept)[0])[0]
  is_valid = trees.finite_rows(kept, num_clients)
  is_measured = is_valid & trees.finite_rows(outputs.metrics, num_clients)

  def replace():
    zeros = trees.zeros_like(outputs.result)
    return trees.select_rows(is_valid, kept, (zeros, old_states))

  # Nearly always all are valid; then nothing as large as the models is copied.
  result, states = tf.cond(tf.reduce_all(is_valid), lambda: kept, replace)
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
    *tf.nest.map_structure(lambda leaf: leaf[tf.newaxis], (output, old_state))
  )


def aggregate(
  phase: algorithm_lib.Phase,
  client_index: tf.Tensor,
  outputs: algorithm_lib.ClientOutput,
  old_states: Structure,
) -> tuple[OrderedDict[str, Structure], Structure, Structure]:
  """Guards a stack of outputs and reduces it to what leaves the block.

  Args:
    phase: The phase.
    client_index: Positions in the population, int32 `[clients]`.
    outputs: What `client_work` returned, stacked on axis 0.
    old_states: The client states before, stacked.

  Returns:
    `partial_sums`, `collected` and the new client states of the guarded stack.
  """

  def reduce(guarded):
    return (
      partial_sums(phase, guarded),
      collected(phase, client_index, guarded),
      guarded.client_state,
    )

  everyone = tf.ones_like(client_index, tf.bool)
  reduced = reduce(GuardedOutput(*outputs, everyone))
  sums, collection, states = reduced
  # Whatever is not finite makes its sum not finite: nearly always a look at
  # the sums is enough, and no pass over every client's model is needed. A state
  # that is also uploaded is in a sum already.
  summed = {
    leaf.ref()
    for field, aggregator in phase.aggregation.items()
    if not isinstance(aggregator, aggregation.Collect)
    for leaf in tf.nest.flatten(outputs.result[field])
  }
  others = [
    leaf for leaf in tf.nest.flatten(states) if leaf.ref() not in summed
  ]
  return tf.cond(
    trees.all_finite((sums, collection, others)),
    lambda: reduced,
    lambda: reduce(guard(outputs, old_states)),
  )


def partial_sums(
  phase: algorithm_lib.Phase, outputs: GuardedOutput
) -> OrderedDict[str, Structure]:
  """Returns what a stack of clients adds to each sum.

  Args:
    phase: The phase.
    outputs: Stacked on axis 0.

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
  """Returns what a stack of clients adds to the collected fields.

  Returns:
    An empty mapping if the phase collects nothing, so that nothing is moved.
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


def server_update(
  phase: algorithm_lib.Phase,
  server_state: Structure,
  sums: Mapping[str, Structure],
  collection: Structure,
) -> tuple[Structure, Structure]:
  """Finishes the aggregates and runs the phase's server update.

  Args:
    phase: The phase.
    server_state: The state before.
    sums: `partial_sums`, added up over the cohort.
    collection: `collected`, concatenated over the cohort in any order.

  Returns:
    The state after, and the server metrics.
  """
  aggregates = {}
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
  return phase.server_update(server_state, aggregates)


def state_specs(
  algorithm: algorithm_lib.FederatedAlgorithm, num_clients: int
) -> tuple[Structure, Structure]:
  """Returns the types of the server state and of one client's state."""
  seed = tf.TensorSpec([2], tf.int32)
  server_state = _trace(
    algorithm.name,
    'init_server_state',
    'the runtime',
    lambda seed: algorithm.init_server_state(seed, num_clients),
    seed,
  )
  client_state = _trace(
    algorithm.name,
    'init_client_state',
    'the runtime',
    algorithm.init_client_state,
    seed,
    seed,
  )
  return server_state, client_state


def check_algorithm(
  algorithm: algorithm_lib.FederatedAlgorithm, num_clients: int = 3
) -> dict[str, PhaseTypes]:
  """Checks every phase of an algorithm, see `check_phase`.

  Args:
    algorithm: The algorithm.
    num_clients: Population size that the server state is made for.

  Returns:
    phase name -> its types.

  Raises:
    StageTypeError: If two stages of a phase do not fit.
  """
  server_state, client_state = state_specs(algorithm, num_clients)
  data = data_spec(algorithm.cluster_model)
  return {
    name: check_phase(phase, server_state, client_state, data)
    for name, phase in algorithm.phases.items()
  }


def data_spec(model: model_lib.Model) -> algorithm_lib.ClientData:
  """Returns the type of one client's examples, of any capacity."""
  return algorithm_lib.ClientData(
    tf.TensorSpec([None, *model.input_shape], tf.float32),
    tf.TensorSpec([None], model.label_dtype),
    tf.TensorSpec([None], tf.float32),
  )


def check_phase(
  phase: algorithm_lib.Phase,
  server_state: Structure,
  client_state: Structure,
  data: algorithm_lib.ClientData,
) -> PhaseTypes:
  """Traces a phase and checks that each stage fits the next.

  Args:
    phase: The phase.
    server_state: Structure of `tf.TensorSpec`.
    client_state: Structure of `tf.TensorSpec`.
    data: Structure of `tf.TensorSpec`.

  Returns:
    The types of the phase.

  Raises:
    StageTypeError: If two stages do not fit; names both and their types.
  """
  clients = Clients(
    client_index=tf.TensorSpec([], tf.int32),
    client_input=phase.client_input,
    client_state=client_state if phase.uses_client_state else (),
    data=data,
    seed=tf.TensorSpec([2], tf.int32),
  )
  trace = functools.partial(_trace, phase.name)
  message = trace(
    'make_message', 'server_state', phase.make_message, server_state
  )
  output = trace(
    'client_work',
    'make_message and client_input',
    phase.client_work,
    message,
    clients.client_input,
    clients.client_state,
    clients.data,
    clients.seed,
  )
  _check_output(phase.name, output)
  _check_same(
    phase.name,
    ('client state before client_work', clients.client_state),
    ('client state after client_work', output.client_state),
  )
  _check_fields(phase, as_fields(output.result))
  output = algorithm_lib.ClientOutput(
    as_fields(output.result), output.client_state, OrderedDict(output.metrics)
  )
  _check_server_update(phase, server_state, output)
  return PhaseTypes(server_state, clients, message, output)


def _trace(
  phase_name: str,
  stage: str,
  feeder: str,
  function: Callable[..., Structure],
  *specs: Structure,
) -> Structure:
  """Returns the output type of a stage as a structure of specs."""
  try:
    outputs = tf.function(function, autograph=False).get_concrete_function(
      *specs
    )
  except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
    raise errors.StageTypeError(
      f'phase {phase_name!r}: stage {stage!r} does not accept what {feeder} '
      f'gives it, of type {_spell(specs)}: {type(error).__name__}: {error}'
    ) from error
  return tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype),
    outputs.structured_outputs,
  )


def _check_server_update(
  phase: algorithm_lib.Phase,
  server_state: Structure,
  output: algorithm_lib.ClientOutput,
) -> None:
  """Checks that the aggregates fit server_update, and that it fits itself."""

  def finish(server_state, output):
    outputs = guard_one(output, output.client_state)
    return server_update(
      phase,
      server_state,
      partial_sums(phase, outputs),
      collected(phase, tf.zeros([1], tf.int32), outputs),
    )

  updated = _trace(
    phase.name, 'server_update', 'aggregation', finish, server_state, output
  )
  if type(updated) is not tuple or len(updated) != 2:
    raise errors.StageTypeError(
      f"phase {phase.name!r}: stage 'server_update' must return the pair "
      f'(server state, metrics), got {_spell(updated)}'
    )
  _check_same(
    phase.name,
    ('server state before server_update', server_state),
    ('server state after server_update', updated[0]),
  )


def _check_output(phase_name: str, output: Structure) -> None:
  is_output = isinstance(output, algorithm_lib.ClientOutput)
  if not is_output or not (
    hasattr(output.result, '_asdict') or isinstance(output.result, Mapping)
  ):
    raise errors.StageTypeError(
      f"phase {phase_name!r}: stage 'client_work' must return a ClientOutput "
      'whose result is a NamedTuple or a mapping of fields, got '
      f'{type(output).__name__} {_spell(output)}'
    )


def _check_fields(
  phase: algorithm_lib.Phase, result: Mapping[str, Structure]
) -> None:
  for field, aggregator in phase.aggregation.items():
    needed = [field, *vars(aggregator).values()]
    missing = [name for name in needed if name not in result]
    if missing:
      raise errors.StageTypeError(
        f'phase {phase.name!r}: aggregation of {field!r} by '
        f'{type(aggregator).__name__} needs the field {missing[0]!r}, but '
        f'client_work returns {_spell(result)}'
      )


def _check_same(
  phase_name: str, before: tuple[str, Any], after: tuple[str, Any]
) -> None:
  """Raises StageTypeError unless two named types are the same."""
  try:
    tf.nest.assert_same_structure(before[1], after[1])
    same = all(
      first.dtype == second.dtype and first.shape == second.shape
      for first, second in zip(
        tf.nest.flatten(before[1]), tf.nest.flatten(after[1]), strict=True
      )
    )
  except (TypeError, ValueError):
    same = False
  if not same:
    raise errors.StageTypeError(
      f'phase {phase_name!r}: {after[0]} has type {_spell(after[1])}, but '
      f'{before[0]} has type {_spell(before[1])}; they must be the same'
    )


def _spell(structure: Structure) -> str:
  """Returns a type in TFF's short notation, such as `<w=float32[3]>`."""
  if isinstance(structure, tf.TensorSpec):
    shape = (
      '?'
      if structure.shape.rank is None
      else ','.join(
        '?' if size is None else str(size) for size in structure.shape
      )
    )
    return f'{structure.dtype.name}[{shape}]'
  if hasattr(structure, '_asdict'):
    structure = structure._asdict()
  if isinstance(structure, Mapping):
    return (
      '<' + ','.join(f'{k}={_spell(v)}' for k, v in structure.items()) + '>'
    )
  if isinstance(structure, (tuple, list)):
    return '<' + ','.join(_spell(item) for item in structure) + '>'
  return repr(structure)
