"""The stages of a phase as graphs, traced once, and their types, checked."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying, errors
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics
from tff_algos.rounds import aggregation, client_rows, composer

# Tracing takes seconds: algorithm -> number of clients -> types by phase.
_STATES: weakref.WeakKeyDictionary[
  algorithm_lib.FederatedAlgorithm, dict[int, tuple[Structure, Structure]]
] = weakref.WeakKeyDictionary()
_PHASES: weakref.WeakKeyDictionary[
  algorithm_lib.FederatedAlgorithm, dict[int, dict[str, 'PhaseTypes']]
] = weakref.WeakKeyDictionary()


class ClientGraph:
  """The client work of a phase as a graph, traced once for one client.

  Attributes:
    output: Types of its `ClientOutput`.
  """

  def __init__(self, phase: algorithm_lib.Phase, signature: Structure):
    """Traces the client work.

    Args:
      phase: The phase.
      signature: Types of the arguments of a call.
    """
    self.output: Structure = None
    self._positions: list[int] = []
    self._graph = tf.function(
      functools.partial(self._work, phase),
      autograph=False,
      input_signature=signature,
    ).get_concrete_function()

  def _work(
    self,
    phase: algorithm_lib.Phase,
    message: Structure,
    rows: client_rows.Rows,
    places: tf.Tensor,
    client: composer.Clients,
  ) -> list[tf.Tensor]:
    """Returns the distinct leaves of the output."""
    data: Any = client_rows.SpanData(rows, client.data, places)  # pyright: ignore[reportArgumentType]
    output = phase.client_work(
      message, client.client_input, client.client_state, data, client.seed
    )
    output = tf.nest.map_structure(tf.convert_to_tensor, output)
    self.output = _specs(output)
    distinct: dict[Any, tuple[int, tf.Tensor]] = {}
    self._positions = [
      distinct.setdefault(leaf.ref(), (len(distinct), leaf))[0]
      for leaf in tf.nest.flatten(output)
    ]
    return [leaf for _, leaf in distinct.values()]

  def __call__(
    self,
    message: Structure,
    rows: client_rows.Rows,
    places: tf.Tensor,
    client: composer.Clients,
  ) -> algorithm_lib.ClientOutput:
    """Returns the output of one client, as `composer.client_work` does.

    Leaves that are one tensor in the graph are one tensor in the output.

    Args:
      message: The broadcast message.
      rows: Examples of some clients.
      places: 0 ... capacity - 1, see `client_rows.SpanData`.
      client: The client; its data are a `client_rows.Span`.
    """
    leaves = self._graph(message, rows, places, client)
    output = tf.nest.pack_sequence_as(
      self.output, [leaves[position] for position in self._positions]
    )
    return composer.with_fields(output)


class Stages(NamedTuple):
  """The stages of a phase as graphs.

  Attributes:
    make_message: server state -> message.
    client_work: The work of one client.
    server_update: (server state, sums, collection) -> (state, metrics), see
      `composer.server_update`.
  """

  make_message: Any
  client_work: ClientGraph
  server_update: Any


class PhaseTypes(NamedTuple):
  """The types of a phase as structures of `tf.TensorSpec`.

  Attributes:
    server_state: The server state.
    clients: One client's arguments, `composer.Clients`.
    message: The broadcast message.
    output: One client's `ClientOutput`, its result as field -> value.
    sums: `composer.partial_sums` of any clients.
    collection: `composer.collected` of any clients.
    server_metrics: Metrics of the server update.
    stages: The stages as graphs.
  """

  server_state: Structure
  clients: composer.Clients
  message: Structure
  output: algorithm_lib.ClientOutput
  sums: Structure
  collection: Structure
  server_metrics: Structure
  stages: Stages


def state_specs(
  algorithm: algorithm_lib.FederatedAlgorithm, num_clients: int
) -> tuple[Structure, Structure]:
  """Returns the types of the server state and of one client's state."""
  known = _STATES.setdefault(algorithm, {})
  if num_clients in known:
    return known[num_clients]
  seed = tf.TensorSpec([2], tf.int32)
  server_state = _trace(
    f'algorithm {algorithm.name!r}',
    'init_server_state',
    'the runtime',
    lambda seed: algorithm.init_server_state(seed, num_clients),
    seed,
  )
  client_state = _trace(
    f'algorithm {algorithm.name!r}',
    'init_client_state',
    'the runtime',
    algorithm.init_client_state,
    seed,
    seed,
  )
  known[num_clients] = (
    _specs(server_state.structured_outputs),
    _specs(client_state.structured_outputs),
  )
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
    StageTypeError: If two stages of a phase do not fit, a metric has another
      type, or `carry` has rules for other fields than the server state's.
  """
  known = _PHASES.setdefault(algorithm, {})
  if num_clients not in known:
    server_state, client_state = state_specs(algorithm, num_clients)
    data = data_spec(algorithm.cluster_model)
    types = {
      name: check_phase(phase, server_state, client_state, data)
      for name, phase in algorithm.phases.items()
    }
    for name, one in types.items():
      _check_metrics(name, one)
    _check_rules(algorithm, algorithm.carry.rules, server_state)
    known[num_clients] = types
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


def check_own(
  algorithm: algorithm_lib.FederatedAlgorithm, phase: algorithm_lib.Phase
) -> None:
  """Raises ConfigError if a phase only has the name of one of an algorithm's.

  Args:
    algorithm: That of a runtime, which keeps graphs by names of phases.
    phase: A phase that the runtime is to run.
  """
  if algorithm.phases.get(phase.name, phase) is not phase:
    raise errors.ConfigError(
      f'the phase {phase.name!r} is not that of the algorithm '
      f'{algorithm.name!r} for which this runtime was built, and whose graphs '
      'it keeps; build a runtime for each algorithm'
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
  subject = f'phase {phase.name!r}'
  make_message = _trace(
    subject, 'make_message', 'server_state', phase.make_message, server_state
  )
  message = _specs(make_message.structured_outputs)
  # What `Phase.client_work` takes.
  arguments = (message, *clients[1:])
  with _fitting(
    subject, 'client_work', 'make_message and client_input', arguments
  ):
    client_work = ClientGraph(
      phase,
      (
        message,
        client_rows.Rows(data.x, data.y),
        tf.TensorSpec([None], tf.int32),
        clients._replace(data=client_rows.SPAN),
      ),
    )
  output = client_work.output
  _check_output(phase.name, output)
  _check_same(
    phase.name,
    ('client state before client_work', clients.client_state),
    ('client state after client_work', output.client_state),
  )
  _check_fields(phase, composer.as_fields(output.result))
  output = composer.with_fields(output)
  sums, collection = _specs(
    _trace(
      subject,
      'aggregation',
      'client_work',
      functools.partial(_aggregate, phase),
      output,
    ).structured_outputs
  )
  collection = tf.nest.map_structure(
    lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), collection
  )
  server_update = _trace(
    subject,
    'server_update',
    'aggregation',
    functools.partial(composer.server_update, phase),
    server_state,
    sums,
    collection,
  )
  updated = _specs(server_update.structured_outputs)
  _check_update(phase.name, server_state, updated)
  return PhaseTypes(
    server_state,
    clients,
    message,
    output,
    sums,
    collection,
    updated[1],
    Stages(make_message, client_work, server_update),
  )


def aggregates(
  phase: algorithm_lib.Phase, types: PhaseTypes
) -> Mapping[str, Structure]:
  """Returns the types of a phase's aggregates, by field of the result."""
  return _specs(
    _trace(
      f'phase {phase.name!r}',
      'server_update',
      'aggregation',
      functools.partial(composer.finish, phase),
      types.sums,
      types.collection,
    ).structured_outputs
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
  subject: str,
  stage: str,
  feeder: str,
  function: Callable[..., Structure],
  *specs: Structure,
) -> Any:
  """Returns a stage as a concrete function."""
  with _fitting(subject, stage, feeder, specs):
    return tf.function(
      function, autograph=False, input_signature=specs
    ).get_concrete_function()


@contextlib.contextmanager
def _fitting(
  subject: str, stage: str, feeder: str, specs: Structure
) -> Generator[None]:
  """Reports an error while a stage is traced as one of its arguments."""
  try:
    yield
  except errors.ConfigError:
    raise  # The types match; the value of an option is wrong.
  except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
    raise errors.StageTypeError(
      f'{subject}: stage {stage!r} does not accept what {feeder} '
      f'gives it, of type {spell(specs)}: {type(error).__name__}: {error}'
    ) from error


def _specs(structure: Structure) -> Structure:
  """Returns the types of a structure of tensors."""
  return tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), structure
  )


def _aggregate(
  phase: algorithm_lib.Phase, output: algorithm_lib.ClientOutput
) -> tuple[Structure, Structure]:
  """Returns the partial sums and the collection of one client."""
  stacked = tf.nest.map_structure(lambda leaf: leaf[tf.newaxis], output)
  outputs = composer.GuardedOutput(*stacked, is_valid=tf.constant([True]))
  return (
    composer.partial_sums(phase, outputs),
    composer.collected(phase, tf.zeros([1], tf.int32), outputs),
  )


def _check_update(
  phase_name: str, server_state: Structure, updated: Structure
) -> None:
  """Raises StageTypeError unless server_update keeps the type of its state."""
  if type(updated) is not tuple or len(updated) != 2:
    raise errors.StageTypeError(
      f"phase {phase_name!r}: stage 'server_update' must return the pair "
      f'(server state, metrics), got {spell(updated)}'
    )
  _check_same(
    phase_name,
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


def _check_metrics(phase_name: str, types: PhaseTypes) -> None:
  """Raises StageTypeError unless all metrics are numbers.

  Those of clients are means of scalars. Nested ones of the server are no
  metrics.
  """
  for name, value in types.output.metrics.items():
    is_mean = isinstance(value, statistics.MeanStat)
    if not is_mean or not all(map(_is_number, tf.nest.flatten(value))):
      raise errors.StageTypeError(
        f'phase {phase_name!r}: metric {name!r} of client_work must be a '
        f'statistics.MeanStat of scalars, got {spell(value)}'
      )
  for name, value in types.server_metrics.items():
    if not (tf.nest.is_nested(value) or _is_number(value)):
      raise errors.StageTypeError(
        f'phase {phase_name!r}: metric {name!r} of server_update must be a '
        f'number, got {spell(value)}'
      )


def _is_number(spec: tf.TensorSpec) -> bool:
  is_numeric = spec.dtype.is_floating or spec.dtype.is_integer
  return spec.shape.rank in (0, None) and (is_numeric or spec.dtype.is_bool)


def _check_rules(
  algorithm: algorithm_lib.FederatedAlgorithm,
  rules: carrying.Rule | carrying.Rules,
  state: Structure,
) -> None:
  """Raises StageTypeError unless every field of a server state has a rule."""
  if isinstance(rules, carrying.Rule):
    return
  fields = state._asdict() if hasattr(state, '_asdict') else {}
  differing = sorted(rules.keys() ^ fields.keys())
  if differing:
    raise errors.StageTypeError(
      f'algorithm {algorithm.name!r}: carry must have a rule for each field of '
      f'the server state, a NamedTuple, and for no other; {differing[0]!r} is '
      f'in {"carry" if differing[0] in rules else "the server state"} alone, '
      f'of type {spell(state)}'
    )
  for name, value in fields.items():
    _check_rules(algorithm, rules[name], value)


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
