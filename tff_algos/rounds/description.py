"""Description of an algorithm's round as text: phases, types and bytes."""

import itertools
import re
import textwrap
from collections.abc import Callable, Iterator

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, phase_types, plans

_NUM_ROUNDS = 4  # Of the plan.
_WIDTH = 88
# A comma between fields of a type, after which a line may break.
_BETWEEN_FIELDS = re.compile(r',(?=[a-zA-Z_<{])')
_BREAK = '\v'


def describe(
  algorithm: algorithm_lib.FederatedAlgorithm,
  population: algorithm_lib.Population,
  server_state: Structure,
  seed: int,
) -> str:
  """Returns the states, the plan and every phase of an algorithm as text.

  Types are in TFF's compact notation with four abbreviations: W for the model's
  weights and W[n] for n of them stacked, S for the server state, C for a client
  state, D for a client's examples.

  The plan is that of the first rounds if the server state stays the initial
  one: a plan that samples by results of earlier phases may sample others.

  Args:
    algorithm: The algorithm.
    population: All clients; those without examples are not sampled.
    server_state: The server state before round 1, NumPy.
    seed: The run's seed.
  """
  num_clients = population.num_clients
  weights = algorithm.cluster_model.weights_spec()
  state, client_state = phase_types.state_specs(algorithm, num_clients)
  data = phase_types.data_spec(algorithm.cluster_model)
  stacked = _abbreviation(weights, ())
  named = _abbreviation(
    weights, (('S', state), ('C', client_state), ('D', data))
  )
  rounds = [
    list(
      plans.Calls(
        algorithm.plan_round(server_state, population, number, seed),
        server_state,
      )
    )
    for number in range(1, _NUM_ROUNDS + 1)
  ]
  lines = [
    f'{algorithm.name}: {_count(num_clients, "client")}, '
    f'{_count(algorithm.num_clusters, "cluster model")}',
    *_define('W', 'weights of the model', weights, lambda structure: ''),
    *_define('S', 'server state', state, stacked),
    *_define('C', 'client state', client_state, stacked),
    *_fill(f'D  examples of a client: {phase_types.spell(data)}', 3),
    '',
    *_plan_lines(rounds),
  ]
  types = phase_types.check_algorithm(algorithm, num_clients)
  calls = [call for one in rounds for call in one]
  planned = [call.phase for call in calls]
  for name in dict.fromkeys([*planned, *algorithm.phases]):
    if algorithm_lib.phase_purpose(name) == name:
      sizes = {len(call.client_indices) for call in calls if call.phase == name}
      lines += ['', f'phase {name}']
      lines += _phase_lines(algorithm.phases[name], types[name], named)
      lines += _traffic_lines(types[name], sorted(sizes))
  return '\n'.join(lines)


def _define(
  letter: str, meaning: str, spec: Structure, name: Callable[[Structure], str]
) -> list[str]:
  """Returns the lines that define an abbreviation."""
  size = trees.num_bytes(spec)
  spelled = phase_types.spell(spec, name)
  return _fill(f'{letter}  {meaning}, {size:,} bytes: {spelled}', 3)


def _plan_lines(
  rounds: list[list[algorithm_lib.PhaseCall]],
) -> Iterator[str]:
  """Yields one line for each run of rounds with the same calls."""
  spelled = [
    ', '.join(
      f'{call.phase} ({_count(len(call.client_indices), "client")})'
      for call in calls
    )
    or 'nothing'
    for calls in rounds
  ]
  first = 1
  for text, same in itertools.groupby(spelled):
    last = first + len(list(same)) - 1
    numbers = f'round {first}' if first == last else f'rounds {first}-{last}'
    yield from _fill(f'{numbers}: {text}', 0)
    first = last + 1


def _phase_lines(
  phase: algorithm_lib.Phase,
  types: phase_types.PhaseTypes,
  name: Callable[[Structure], str],
) -> Iterator[str]:
  """Yields the stages of a phase with their types."""

  def spell(structure: Structure) -> str:
    return phase_types.spell(structure, name)

  clients, output = types.clients, types.output
  arguments = {
    'message': types.message,
    'client_input': clients.client_input,
    'client_state': clients.client_state,
    'data': clients.data,
    'seed': clients.seed,
  }
  yield from _stage('make_message', f'(S -> {spell(types.message)})@SERVER')
  yield from _stage(
    'client_work', f'{{({spell(arguments)} -> {spell(output)})}}@CLIENTS'
  )
  aggregates = phase_types.aggregates(phase, types)
  for field, aggregator in phase.aggregation.items():
    weight = ','.join(aggregation.weight_fields(aggregator))
    yield from _stage(
      'aggregation',
      f'{field} by {type(aggregator).__name__}({weight}): '
      f'({{{spell(output.result[field])}}}@CLIENTS -> '
      f'{spell(aggregates[field])}@SERVER)',
    )
  fields = ','.join(['S', *phase.aggregation])
  metrics = spell(types.server_metrics)
  yield from _stage('server_update', f'(<{fields}> -> <S,{metrics}>)@SERVER')


def _traffic_lines(
  types: phase_types.PhaseTypes, cohort_sizes: list[int]
) -> Iterator[str]:
  """Yields the bytes to and from one client, and those of whole cohorts."""
  for direction, moved in (
    ('down', (types.message, types.clients.client_input)),
    ('up', types.output.result),
  ):
    size = trees.num_bytes(moved)
    cohorts = ''.join(
      f'; {size * n:,} for {_count(n, "client")}' for n in cohort_sizes
    )
    yield from _stage(direction, f'{size:,} bytes per client{cohorts}')


def _abbreviation(
  weights: Structure, names: tuple[tuple[str, Structure], ...]
) -> Callable[[Structure], str]:
  """Returns a function: structure -> its abbreviation; empty for none."""
  leaves = tf.nest.flatten(weights)

  def abbreviate(structure: Structure) -> str:
    for letter, spec in names:
      is_filled = hasattr(spec, '_asdict') and tf.nest.flatten(spec)
      if is_filled and type(structure) is type(spec) and structure == spec:
        return letter
    if not _is_same_structure(structure, weights):
      return ''
    first = tf.nest.flatten(structure)[0].shape
    stack = first[: len(first) - len(leaves[0].shape)]
    if tf.nest.flatten(structure) != [
      tf.TensorSpec([*stack, *leaf.shape], leaf.dtype) for leaf in leaves
    ]:
      return ''
    sizes = ','.join('?' if size is None else str(size) for size in stack)
    return f'W[{sizes}]' if sizes else 'W'

  return abbreviate


def _is_same_structure(structure: Structure, weights: Structure) -> bool:
  try:
    tf.nest.assert_same_structure(structure, weights)
  except (TypeError, ValueError):
    return False
  return True


def _stage(name: str, text: str) -> list[str]:
  return _fill(f'  {name:14}{text}', 16)


def _fill(text: str, indent: int) -> list[str]:
  """Returns the lines of a text, broken at spaces and between fields."""
  lines = textwrap.wrap(
    _BETWEEN_FIELDS.sub(f',{_BREAK}', text),
    _WIDTH,
    subsequent_indent=' ' * indent,
    replace_whitespace=False,
    break_long_words=False,
    break_on_hyphens=False,
  )
  return [line.replace(_BREAK, '') for line in lines]


def _count(number: int, noun: str) -> str:
  return f'{number} {noun}' + ('' if number == 1 else 's')
