"""Type inference and type checks of the stages of a phase."""

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.rounds import aggregation, composer

# Tracing takes seconds: algorithm -> number of clients -> types by phase.
_STATES: weakref.WeakKeyDictionary[
  algorithm_lib.FederatedAlgorithm, dict[int, tuple[Structure, Structure]]
] = weakref.WeakKeyDictionary()
_PHASES: weakref.WeakKeyDictionary[
  algorithm_lib.FederatedAlgorithm, dict[int, dict[str, 'PhaseTypes']]
] = weakref.WeakKeyDictionary()


class PhaseTypes(NamedTuple):
  """The types of a phase as structures of `tf.TensorSpec`.

  Attributes:
    server_state: The server state.
    clients: One client's arguments, `composer.Clients`.
    message: The broadcast message.
    output: One client's `ClientOutput`, its result as field -> value.
    sums: `composer.partial_sums` of any clients.
    collection: `composer.collected` of any clients.
    aggregates: Field of the result -> its aggregate; of collected fields, that
      of a cohort of one client.
    server_metrics: Metrics of the server update.
  """

  server_state: Structure
  clients: composer.Clients
  message: Structure
  output: algorithm_lib.ClientOutput
  sums: Structure
  collection: Structure
  aggregates: Mapping[str, Structure]
  server_metrics: Structure


def state_specs(
  algorithm: algorithm_lib.FederatedAlgorithm, num_clients: int
) -> tuple[Structure, Structure]:
  """Returns the types of the server state and of one client's state."""
  known = _STATES.setdefault(algorithm, {})
  if num_clients in known:
    return known[num_clients]
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
  known[num_clients] = server_state, client_state
  return known[num_clients]


def check_algorithm(
  algorithm: algorithm_lib.FederatedAlgorithm, num_clients: int = 3
) -> dict[str, PhaseTypes]:
  """Checks every phase of an algorithm by `check_phase`; cached by size.

  Args:
    algorithm: The algorithm.
    num_clients: Population size of the server state.

  Returns:
    phase name -> its types.

  Raises:
    StageTypeError: If two stages of a phase do not fit.
  """
  known = _PHASES.setdefault(algorithm, {})
  if num_clients not in known:
    server_state, client_state = state_specs(algorithm, num_clients)
    data = data_spec(algorithm.cluster_model)
    known[num_clients] = {
      name: check_phase(phase, server_state, client_state, data)
      for name, phase in algorithm.phases.items()
    }
  return known[num_clients]


def types_of(
  algorithm: algorithm_lib.FederatedAlgorithm,
  phase: algorithm_lib.Phase,
  num_clients: int,
) -> PhaseTypes:
  """Returns the types of a phase on the states of an algorithm.

  Args:
    algorithm: The algorithm.
    phase: A phase of the algorithm, or an evaluation phase.
    num_clients: Size of the population.

  Raises:
    StageTypeError: If two stages of the phase do not fit.
  """
  types = check_algorithm(algorithm, num_clients)
  if phase.name in types:
    return types[phase.name]
  return check_phase(
    phase,
    *state_specs(algorithm, num_clients),
    data_spec(algorithm.cluster_model),
  )


def data_spec(model: model_lib.Model) -> algorithm_lib.ClientData:
  """Returns the type of one client's examples, of any capacity."""
  columns: Structure = (
    tf.TensorSpec([None, *model.input_shape], model.input_dtype),
    tf.TensorSpec([None, *model.label_shape], model.label_dtype),
    tf.TensorSpec([None], tf.float32),
  )
  return algorithm_lib.ClientData(*columns)


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
  clients = composer.Clients(
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
  _check_fields(phase, composer.as_fields(output.result))
  output = algorithm_lib.ClientOutput(
    composer.as_fields(output.result),
    output.client_state,
    OrderedDict(output.metrics),
  )
  return PhaseTypes(
    server_state,
    clients,
    message,
    output,
    *_check_server_update(phase, server_state, output),
  )


def spell(
  structure: Structure,
  abbreviate: Callable[[Structure], str] = lambda structure: '',
) -> str:
  """Returns a type in TFF's compact notation, such as `<w=float32[3]>`.

  Args:
    structure: Structure of `tf.TensorSpec`.
    abbreviate: Part of the structure -> its name, empty for none.
  """
  name = abbreviate(structure)
  if name:
    return name
  if isinstance(structure, tf.TensorSpec):
    if structure.shape.rank is None:
      return f'{structure.dtype.name}[...]'
    sizes = ['?' if size is None else str(size) for size in structure.shape]
    return structure.dtype.name + (f'[{",".join(sizes)}]' if sizes else '')
  if hasattr(structure, '_asdict'):
    structure = structure._asdict()
  if isinstance(structure, Mapping):
    fields = [f'{k}={spell(v, abbreviate)}' for k, v in structure.items()]
  elif isinstance(structure, (tuple, list)):
    fields = [spell(item, abbreviate) for item in structure]
  else:
    return repr(structure)
  return f'<{",".join(fields)}>'


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
  except errors.ConfigError:
    raise  # The types match; the value of an option is wrong.
  except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
    raise errors.StageTypeError(
      f'phase {phase_name!r}: stage {stage!r} does not accept what {feeder} '
      f'gives it, of type {spell(specs)}: {type(error).__name__}: {error}'
    ) from error
  return tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype),
    outputs.structured_outputs,
  )


def _check_server_update(
  phase: algorithm_lib.Phase,
  server_state: Structure,
  output: algorithm_lib.ClientOutput,
) -> tuple[Structure, Structure, Mapping[str, Structure], Structure]:
  """Checks server_update: it accepts the aggregates and keeps its type.

  Returns:
    The types of the sums, the collection, the aggregates and the metrics.
  """

  def finish(
    server_state: Structure, output: algorithm_lib.ClientOutput
  ) -> tuple[Structure, Structure, Mapping[str, Structure], Structure]:
    outputs = composer.guard_one(output, output.client_state)
    sums = composer.partial_sums(phase, outputs)
    collection = composer.collected(phase, tf.zeros([1], tf.int32), outputs)
    aggregates = composer.finish(phase, sums, collection)
    updated = phase.server_update(server_state, aggregates)
    return sums, collection, aggregates, updated

  sums, collection, aggregates, updated = _trace(
    phase.name, 'server_update', 'aggregation', finish, server_state, output
  )
  if type(updated) is not tuple or len(updated) != 2:
    raise errors.StageTypeError(
      f"phase {phase.name!r}: stage 'server_update' must return the pair "
      f'(server state, metrics), got {spell(updated)}'
    )
  _check_same(
    phase.name,
    ('server state before server_update', server_state),
    ('server state after server_update', updated[0]),
  )
  collection = tf.nest.map_structure(
    lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), collection
  )
  return sums, collection, aggregates, updated[1]


def _check_output(phase_name: str, output: Structure) -> None:
  is_output = isinstance(output, algorithm_lib.ClientOutput)
  if not is_output or not (
    hasattr(output.result, '_asdict') or isinstance(output.result, Mapping)
  ):
    raise errors.StageTypeError(
      f"phase {phase_name!r}: stage 'client_work' must return a ClientOutput "
      'whose result is a NamedTuple or a mapping of fields, got '
      f'{type(output).__name__} {spell(output)}'
    )


def _check_fields(
  phase: algorithm_lib.Phase, result: Mapping[str, Structure]
) -> None:
  for field, aggregator in phase.aggregation.items():
    needed = [field, *aggregation.weight_fields(aggregator)]
    missing = [name for name in needed if name not in result]
    if missing:
      raise errors.StageTypeError(
        f'phase {phase.name!r}: aggregation of {field!r} by '
        f'{type(aggregator).__name__} needs the field {missing[0]!r}, but '
        f'client_work returns {spell(result)}'
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
      f'phase {phase_name!r}: {after[0]} has type {spell(after[1])}, but '
      f'{before[0]} has type {spell(before[1])}; they must be the same'
    )
