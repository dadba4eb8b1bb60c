"""The reference: each phase as a TFF computation on TFF's C++ runtime."""

import dataclasses
from typing import Any

import grpc
import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors, tff_compat
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import worker as worker_lib
from tff_algos.stages import composer, federated

Structure = Any


@dataclasses.dataclass(frozen=True)
class TffConfig:
  """Options of the TFF runtime.

  Attributes:
    start_timeout_seconds: How long the worker process may take to answer, > 0.
    max_concurrent_calls: Clients computed at a time; -1 lets TFF decide.
  """

  start_timeout_seconds: float = 30.0
  max_concurrent_calls: int = -1

  def __post_init__(self):
    checks.check_positive('start_timeout_seconds', self.start_timeout_seconds)
    checks.check_int(
      'max_concurrent_calls', self.max_concurrent_calls, minimum=-1
    )


class TffRuntime:
  """Runs phases in a worker process that it starts, watches and ends.

  Stock TFF 0.87 computes on the CPU only.
  """

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    num_clients: int,
    config: TffConfig | None = None,
  ):
    """Prepares the computations of an algorithm.

    Args:
      algorithm: What to run.
      num_clients: Size of the population.
      config: Options.
    """
    config = config or TffConfig()
    self._algorithm = algorithm
    self._num_clients = num_clients
    self._worker = worker_lib.LocalWorker(
      start_timeout_seconds=config.start_timeout_seconds,
      max_concurrent_computation_calls=config.max_concurrent_calls,
    )
    self._computations: dict[str, tff_compat.Computation] = {}
    self._channel: grpc.Channel | None = None
    self._context = None

  def __enter__(self) -> 'TffRuntime':
    self._worker.start()
    self._channel = tff_compat.connect(self._worker.address)
    self._context = tff_compat.remote_context(
      self._channel, self._worker.check_alive
    )
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._context = None
    if self._channel is not None:
      self._channel.close()
    self._worker.close()

  def run(
    self,
    phase: algorithm_lib.Phase,
    server_state: Structure,
    cohort: cohort_lib.Cohort,
  ) -> cohort_lib.PhaseOutput:
    """Runs one phase call, see `cohort.Runtime`.

    Raises:
      RuntimeFailureError: If the worker died; says what it said last.
    """
    computation = self._computation_of(phase)
    clients = [self._load(phase, cohort, i) for i in range(cohort.size)]
    self._worker.check_alive()
    try:
      with tff_compat.in_context(self._context):
        output = computation(server_state, clients)
    except Exception as error:
      self._worker.check_alive()
      raise errors.RuntimeFailureError(
        f'round {cohort.round_num}, phase {phase.name!r}: the TFF worker '
        f'refused the computation: {_words_of(error)}. '
        '--config.runtime.name=debug names the stage and the client'
      ) from error
    return cohort_lib.PhaseOutput(
      server_state=cohort_lib.to_numpy(output['server_state']),
      client_states=_in_order(output['clients'], cohort.call.client_indices),
      server_metrics=cohort_lib.to_numpy(output['server_metrics']),
      client_metrics=dict(
        cohort_lib.to_numpy(output['client_metrics']['metrics'])
      ),
      num_invalid=int(output['client_metrics']['num_invalid']),
    )

  def _computation_of(
    self, phase: algorithm_lib.Phase
  ) -> tff_compat.Computation:
    if phase.name not in self._computations:
      types = composer.check_phase(
        phase,
        *composer.state_specs(self._algorithm, self._num_clients),
        composer.data_spec(self._algorithm.cluster_model),
      )
      self._computations[phase.name] = federated.build_federated_phase(
        phase, types
      )
    return self._computations[phase.name]

  def _load(
    self, phase: algorithm_lib.Phase, cohort: cohort_lib.Cohort, position: int
  ) -> composer.Clients:
    clients = cohort.load(
      position,
      position + 1,
      uses_client_state=phase.uses_client_state,
      capacity=lambda largest: largest,
    )
    return tf.nest.map_structure(lambda leaf: leaf[0], clients)


def _words_of(error: Exception) -> str:
  """Returns what an error says, in one line."""
  said = error.details() if isinstance(error, grpc.Call) else error
  return f'{type(error).__name__}: {" ".join(str(said).split())}'


def _in_order(
  outputs: list[Structure], client_indices: np.ndarray
) -> Structure:
  """Stacks the client states in the cohort's order; TFF promises none.

  Raises:
    RuntimeFailureError: If other clients came back than were sent.
  """
  states = {int(one['client_index']): one['client_state'] for one in outputs}
  if sorted(states) != sorted(int(index) for index in client_indices):
    raise errors.RuntimeFailureError(
      f'TFF returned the clients {sorted(states)}, but '
      f'{sorted(map(int, client_indices))} were sent'
    )
  rows = [states[int(index)] for index in client_indices]
  return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)
