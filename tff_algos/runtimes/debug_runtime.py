"""Debug runtime: eager execution, client by client, with located errors."""

import contextlib
import dataclasses
from collections.abc import Generator
from typing import Any

import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, composer
from tff_algos.runtimes import cohort as cohort_lib


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
    """Takes the arguments of all runtimes; only the algorithm is checked.

    Raises:
      ConfigError: If the algorithm needs the runtime `tff`.
    """
    del num_clients, config
    aggregation.refuse_processes(algorithm.phases, 'the runtime debug')

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
    server_state = _to_tensors(server_state)
    with _named(cohort, 'make_message'):
      message = phase.make_message(server_state)
    sums, collections, states = None, [], []
    for position, client_id in enumerate(cohort.client_ids):
      client = _to_tensors(
        cohort.client(position, uses_client_state=phase.uses_client_state)
      )
      with _named(cohort, 'client_work', client_id):
        output = composer.client_work(phase, message, client)
      outputs = composer.guard_one(output, client.client_state)
      with _named(cohort, 'aggregation', client_id):
        part = composer.partial_sums(phase, outputs)
        sums = part if sums is None else trees.add(sums, part)
      collections.append(
        composer.collected(phase, client.client_index[tf.newaxis], outputs)
      )
      states.append(outputs.client_state)
    collection = _to_tensors(cohort_lib.concatenate(collections))
    with _named(cohort, 'server_update'):
      new_state, server_metrics = composer.server_update(
        phase,
        server_state,
        sums,  # pyright: ignore[reportArgumentType]
        collection,
      )
    return cohort_lib.PhaseOutput(
      server_state=cohort_lib.to_numpy(new_state),
      client_states=[
        (cohort.call.client_indices, cohort_lib.concatenate(states))
      ],
      server_metrics=cohort_lib.to_numpy(server_metrics),
      client_metrics=dict(cohort_lib.to_numpy(sums['metrics'])),  # pyright: ignore[reportOptionalSubscript]
      num_invalid=int(sums['num_invalid']),  # pyright: ignore[reportOptionalSubscript]
    )


@contextlib.contextmanager
def _named(
  cohort: cohort_lib.Cohort, stage: str, client_id: str | None = None
) -> Generator[None]:
  """Adds round, phase, stage and client to an error raised in the block."""
  try:
    yield
  except Exception as error:
    client = '' if client_id is None else f', client {client_id!r}'
    raise errors.RuntimeFailureError(
      f'round {cohort.round_num}, phase {cohort.call.phase!r}, stage '
      f'{stage!r}{client}: {type(error).__name__}: {error}'
    ) from error


def _to_tensors(structure: Structure) -> Structure:
  return tf.nest.map_structure(tf.convert_to_tensor, structure)
