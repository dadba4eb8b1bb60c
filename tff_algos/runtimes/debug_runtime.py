"""Eager and client by client; an error says where it happened."""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.numerics import trees
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.stages import composer

Structure = Any


@dataclasses.dataclass(frozen=True)
class DebugConfig:
  """The debug runtime has no options."""


class DebugRuntime:
  """Runs the stages eagerly: breakpoints and prints work in them."""

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    num_clients: int,
    config: DebugConfig | None = None,
  ):
    """Needs nothing of an algorithm before a phase is run."""
    del algorithm, num_clients, config

  def __enter__(self) -> 'DebugRuntime':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    pass

  def run(
    self,
    phase: algorithm_lib.Phase,
    server_state: Structure,
    cohort: cohort_lib.Cohort,
  ) -> cohort_lib.PhaseOutput:
    """Runs one phase call, see `cohort.Runtime`.

    Raises:
      RuntimeFailureError: If a stage fails; names round, phase, stage and
        client.
    """

    def at(stage, function, *arguments, client_id=None):
      try:
        return function(*arguments)
      except Exception as error:
        client = f', client {client_id!r}' if client_id is not None else ''
        raise errors.RuntimeFailureError(
          f'round {cohort.round_num}, phase {phase.name!r}, stage '
          f'{stage!r}{client}: {type(error).__name__}: {error}'
        ) from error

    server_state = _to_tensors(server_state)
    message = at('make_message', phase.make_message, server_state)
    sums, collections, states = None, [], []
    for i, client_id in enumerate(cohort.client_ids):
      client = _first(
        cohort.load(
          i,
          i + 1,
          uses_client_state=phase.uses_client_state,
          capacity=lambda largest: largest,
        )
      )
      output = at(
        'client_work',
        composer.client_work,
        phase,
        message,
        client,
        client_id=client_id,
      )
      stack = tf.nest.map_structure(lambda leaf: leaf[tf.newaxis], output)
      part = at(
        'aggregation',
        composer.partial_sums,
        phase,
        stack,
        client_id=client_id,
      )
      sums = part if sums is None else trees.add(sums, part)
      collections.append(
        composer.collected(phase, client.client_index[tf.newaxis], stack)
      )
      states.append(stack.client_state)
    new_state, server_metrics = at(
      'server_update',
      composer.server_update,
      phase,
      server_state,
      sums,
      _to_tensors(cohort_lib.concatenate(collections)),
    )
    return cohort_lib.PhaseOutput(
      server_state=cohort_lib.to_numpy(new_state),
      client_states=cohort_lib.concatenate(states),
      server_metrics=cohort_lib.to_numpy(server_metrics),
      client_metrics=dict(cohort_lib.to_numpy(sums['metrics'])),
      num_invalid=int(sums['num_invalid']),
    )


def _to_tensors(structure: Structure) -> Structure:
  return tf.nest.map_structure(tf.convert_to_tensor, structure)


def _first(stack: Structure) -> Structure:
  """Returns the only row of a stack, as tensors."""
  return tf.nest.map_structure(
    lambda leaf: tf.convert_to_tensor(leaf[0]), stack
  )
