"""Aggregation factories of `tff.aggregators` in place of means and sums.

A factory creates an aggregation process: secure summation, compression,
clipping, noise. `with_aggregators` declares them for fields of an algorithm's
phases; `rounds.federated` runs them, so only the runtime `tff` does. Each
process has a state at the server, which is a part of the server state
(`extended_state`); a mean by cluster has one process, and one state, per
cluster.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying, checks, errors, tff_compat
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import (
  aggregation,
  extended_state,
  phase_types,
  plans,
)


class ProcessState(NamedTuple):
  """State of the processes of a field.

  Attributes:
    is_started: Whether `states` are theirs; before, they are initialized by
      TFF in the first phase that needs them. bool `[]`.
    states: The state of each process.
  """

  is_started: Any
  states: tuple[Any, ...]


def with_aggregators(
  algorithm: algorithm_lib.FederatedAlgorithm,
  factories: Mapping[str, Mapping[str, Any]],
  num_clients: int = 3,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns an algorithm that aggregates by factories of `tff.aggregators`.

  A factory takes the place of the aggregator of a field:

  *   of `WeightedMean`: a weighted factory gets the client's value and weight.
      The result of an unweighted one that averages is taken as the mean;
      clients that are not finite count in it with zeros. It is refused where
      clients that train have weight 0 unless they are drawn
      (`plans.Contribution`), and also averages clients without examples where
      they take part, as in L2GD.
  *   of `ClusterMean`: a weighted factory has a process for each cluster.
  *   of `Sum`: an unweighted factory that does not average.

  `UnweightedMeanFactory` and `DifferentiallyPrivateFactory`, as its class
  methods make it, average, and so do wrappers of them.

  The values are those that the algorithm uploads, models or updates. Clients of
  FedDyn, FedDC and SCAFFOLD keep sums of them, from which the server's part if
  a factory changes values, by clipping, quantization or noise. Weights
  are also added up plainly: a mean of weight 0 is zeros. Measurements of a
  process are dropped.

  Args:
    algorithm: The algorithm, without factories.
    factories: Phase -> field of its result -> factory.
    num_clients: Population size for which the phases are checked: that of the
      run, where the algorithm's options fit one size alone, as FedSoft's
      `fixed_importance` does.

  Raises:
    ConfigError: If there is no such phase or field, the field is not
      aggregated by a factory of that kind, or the state of a process has no
      fixed shape.
  """
  aggregation.refuse_processes(algorithm.phases, 'a second with_aggregators')
  if not isinstance(factories, Mapping) or not all(
    isinstance(given, Mapping) for given in factories.values()
  ):
    raise errors.ConfigError(
      'factories must be phase -> field -> factory, such as '
      f"{{'train': {{'local_weights': factory}}}}, got {factories!r}"
    )
  types = phase_types.check_algorithm(algorithm, num_clients)
  # Phases that differ in their learning rates alone share their processes.
  purposes = tuple(
    dict.fromkeys(map(algorithm_lib.phase_purpose, algorithm.phases))
  )
  by_purpose: dict[str, dict[str, aggregation.Processed]] = {}
  phases = {}
  for purpose, given in factories.items():
    checks.check_one_of('phase', purpose, purposes)
    phase = algorithm.phases[purpose]
    by_purpose[purpose] = {
      field: _processed(phase, types[purpose], field, factory)
      for field, factory in given.items()
    }
  for name, phase in algorithm.phases.items():
    processed = by_purpose.get(algorithm_lib.phase_purpose(name), {})
    phases[name] = extended_state.lift(phase)._replace(
      aggregation={**phase.aggregation, **processed}
    )

  def init_extra(seed: Structure, num_clients: int) -> Structure:
    del seed, num_clients
    return OrderedDict(
      (
        purpose,
        OrderedDict((field, _unstarted(one)) for field, one in fields.items()),
      )
      for purpose, fields in by_purpose.items()
    )

  return extended_state.extend(algorithm, init_extra, carrying.KEEP, phases)


def without_processes(phase: algorithm_lib.Phase) -> algorithm_lib.Phase:
  """Returns the phase with the total weight in place of processed fields."""
  return phase._replace(
    aggregation={
      field: _TotalWeight(one.replaced)
      if isinstance(one, aggregation.Processed)
      else one
      for field, one in phase.aggregation.items()
    }
  )


def arguments(
  phase: algorithm_lib.Phase, result: Mapping[str, Structure]
) -> OrderedDict[str, Structure]:
  """Returns field -> the arguments of each of its processes, of one client.

  Args:
    phase: The phase.
    result: Guarded result, a stack of one client.
  """
  found: OrderedDict[str, Structure] = OrderedDict()
  for field, one in processed_fields(phase).items():
    value = trees.take(result[field], 0)
    if not one.is_weighted:
      found[field] = (OrderedDict(value=value),)
      continue
    weights = tf.reshape(result[one.replaced.weight_field], [-1])
    found[field] = tuple(
      OrderedDict(value=value, weight=weights[cluster])
      for cluster in range(len(one.processes))
    )
  return found


def run(
  phase: algorithm_lib.Phase,
  server_state: tff_compat.Value,
  values: tff_compat.Value,
) -> OrderedDict[str, tff_compat.Value]:
  """Runs the processes of a phase in a federated computation.

  Args:
    phase: The phase.
    server_state: Server state, at the server.
    values: `arguments`, at the clients.

  Returns:
    field -> new states and results of its processes, at the server.
  """
  purpose = algorithm_lib.phase_purpose(phase.name)
  found: OrderedDict[str, tff_compat.Value] = OrderedDict()
  for field, one in processed_fields(phase).items():
    outputs = []
    for index, process in enumerate(one.processes):
      initial = process.initialize()
      state = tff_compat.federated_map(
        _state_selection(
          server_state.type_signature.member,
          initial.type_signature.member,
          (purpose, field, index),
        ),
        (server_state, initial),
      )
      given = values[field][index]
      names = ('value', 'weight') if one.is_weighted else ('value',)
      output = process.next(state, *(given[name] for name in names))
      outputs.append(
        tff_compat.federated_zip(
          OrderedDict(state=output.state, result=output.result)
        )
      )
    found[field] = tff_compat.federated_zip(tuple(outputs))
  return found


def server_update(
  phase: algorithm_lib.Phase,
  server_state: Structure,
  aggregates: Mapping[str, Structure],
  processed: Mapping[str, Structure],
) -> tuple[Structure, Structure]:
  """Runs the server update with the outputs of processes.

  Args:
    phase: The phase.
    server_state: The server state before.
    aggregates: Field -> aggregate of `without_processes`.
    processed: Result of `run`, empty for none.

  Returns:
    The new server state and the server metrics.
  """
  aggregates = dict(aggregates)
  for field, outputs in processed.items():
    replaced = phase.aggregation[field].replaced
    results = [one['result'] for one in outputs]
    aggregates[field] = _aggregate(replaced, results, aggregates[field])
  state, metrics = phase.server_update(server_state, aggregates)
  if not processed:
    return state, metrics
  purpose = algorithm_lib.phase_purpose(phase.name)
  started = OrderedDict(
    (field, ProcessState(tf.constant(True), tuple(o['state'] for o in outputs)))
    for field, outputs in processed.items()
  )
  extra = OrderedDict(state.extra)
  extra[purpose] = started
  return state._replace(extra=extra), metrics


def processed_fields(
  phase: algorithm_lib.Phase,
) -> dict[str, aggregation.Processed]:
  """Returns field -> its aggregator, of the fields that processes aggregate."""
  return {
    field: one
    for field, one in phase.aggregation.items()
    if isinstance(one, aggregation.Processed)
  }


class _TotalWeight:
  """Adds the weights of a mean up; nothing for a sum."""

  def __init__(self, replaced: Any) -> None:
    self._replaced = replaced

  def partial_sum(self, results: aggregation.Results, field: str) -> Structure:
    """Returns the sum of the weights over axis 0."""
    del field
    if isinstance(self._replaced, aggregation.Sum):
      return ()
    return tf.reduce_sum(results[self._replaced.weight_field], axis=0)

  def finish(self, total: Structure) -> Structure:
    """Returns the sum as it is."""
    return total


def _processed(
  phase: algorithm_lib.Phase,
  types: phase_types.PhaseTypes,
  field: str,
  factory: Any,
) -> aggregation.Processed:
  """Returns the aggregator of a field by a factory; checks its kind."""
  checks.check_one_of(
    f'field of phase {phase.name!r}', field, tuple(phase.aggregation)
  )
  replaced = phase.aggregation[field]
  kinds = {
    aggregation.Sum: (tff_compat.UnweightedFactory,),
    aggregation.WeightedMean: (
      tff_compat.WeightedFactory,
      tff_compat.UnweightedFactory,
    ),
    aggregation.ClusterMean: (tff_compat.WeightedFactory,),
  }.get(type(replaced), ())
  innermost = factory
  if isinstance(factory, kinds):
    innermost = tff_compat.innermost_factory(factory)
  if not isinstance(innermost, kinds):
    allowed = ' or '.join(f'tff.aggregators.{kind.__name__}' for kind in kinds)
    raise errors.ConfigError(
      f'phase {phase.name!r}: {field!r} is aggregated by '
      f'{type(replaced).__name__}, which takes {allowed or "no factory"}, got '
      f'{type(innermost).__name__}. tff.aggregators.MeanFactory makes a '
      'weighted factory of one that adds up, not of one that averages'
    )
  _check_role(phase, field, innermost)
  result = types.output.result
  given, num_processes = [tff_compat.to_type(result[field])], 1
  is_weighted = isinstance(factory, tff_compat.WeightedFactory)
  if is_weighted:
    weight = result[replaced.weight_field]
    given.append(tff_compat.to_type(tf.TensorSpec([], weight.dtype)))
    num_processes = weight.shape.num_elements()
  processes = tuple(factory.create(*given) for _ in range(num_processes))
  for spec in tf.nest.flatten(_state_specs(processes[0])):
    if not spec.shape.is_fully_defined():
      raise errors.ConfigError(
        f'phase {phase.name!r}: {field!r}: the state of a process of '
        f'{type(innermost).__name__} has a tensor of shape {spec.shape}, which '
        'changes with the rounds, as in tree aggregation (DP-FTRL), but a '
        'server state has fixed shapes. Take a factory with fixed ones, such '
        'as DifferentiallyPrivateFactory.gaussian_fixed'
      )
  return aggregation.Processed(replaced, processes, is_weighted)


def _check_role(phase: algorithm_lib.Phase, field: str, innermost: Any) -> None:
  """Raises ConfigError if a sum is given for a mean, or the reverse."""
  name = type(innermost).__name__
  is_sum = isinstance(phase.aggregation[field], aggregation.Sum)
  if tff_compat.divides_twice(innermost):
    raise errors.ConfigError(
      f'phase {phase.name!r}: {field!r}: the value_sum_factory of {name} '
      'averages already, so the mean would be divided twice. Give it one that '
      'adds up, such as tff.aggregators.SumFactory'
    )
  if isinstance(innermost, tff_compat.WeightedFactory):
    return
  averages = tff_compat.averages(innermost)
  if is_sum and averages:
    raise errors.ConfigError(
      f'phase {phase.name!r}: {field!r} is a sum, but {name} averages. Take a '
      'factory that adds up, such as tff.aggregators.SumFactory'
    )
  if not is_sum and not averages:
    raise errors.ConfigError(
      f'phase {phase.name!r}: {field!r} is a mean, and {name} is not known to '
      'average. Take tff.aggregators.MeanFactory, with it as '
      'value_sum_factory if it adds up, or derive a mean of your own from '
      'UnweightedMeanFactory'
    )
  if _contributes_in_part(phase.client_input):
    raise errors.ConfigError(
      f'phase {phase.name!r} also trains clients that are not drawn, with '
      f'weight 0, which {name} would average as well. Take a weighted factory: '
      'tff.aggregators.MeanFactory makes one of a factory that adds up'
    )


def _contributes_in_part(client_input: Structure) -> bool:
  """Returns whether clients train that are not drawn, also under an attack."""
  return isinstance(client_input, plans.Contribution) or (
    isinstance(client_input, tuple)
    and any(_contributes_in_part(part) for part in client_input)
  )


def _unstarted(processed: aggregation.Processed) -> ProcessState:
  """Returns zeros in place of the states of the processes of a field."""
  return ProcessState(
    tf.constant(False),
    tuple(trees.zeros(_state_specs(one)) for one in processed.processes),
  )


def _state_specs(process: Any) -> Structure:
  """Returns the state of a process as a structure of `tf.TensorSpec`s."""
  return tff_compat.to_specs(process.initialize.type_signature.result.member)


def _state_selection(
  server_state_type: tff_compat.Type,
  state_type: tff_compat.Type,
  place: tuple[str, str, int],
) -> tff_compat.Computation:
  """Returns a computation: (server state, initial state) -> state."""
  purpose, field, index = place

  @tff_compat.tensorflow_computation(server_state_type, state_type)
  def select(server_state: Structure, initial: Structure) -> Structure:
    saved = server_state.extra[purpose][field]
    return tf.nest.map_structure(
      lambda old, new: tf.where(saved.is_started, old, new),
      saved.states[index],
      initial,
    )

  return select


def _aggregate(
  replaced: Any, results: list[Structure], weight: Structure
) -> Structure:
  """Returns the aggregate of a field from the results of its processes."""
  if isinstance(replaced, aggregation.Sum):
    return results[0]
  if isinstance(replaced, aggregation.WeightedMean):
    (value,) = results
  else:
    value = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *results)

  def zero_if_unweighted(leaf: tf.Tensor) -> tf.Tensor:
    has_weight = weight > 0
    if isinstance(replaced, aggregation.ClusterMean):
      has_weight = trees.along_rows(has_weight, leaf)
    return tf.where(has_weight, leaf, tf.zeros_like(leaf))

  return aggregation.Mean(
    tf.nest.map_structure(zero_if_unweighted, value), weight
  )
