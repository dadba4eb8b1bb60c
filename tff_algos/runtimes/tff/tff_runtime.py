"""TFF runtime, the reference: each phase as a TFF federated computation."""

import contextlib
import functools
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, composer, federated, phase_types
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes.tff import (
  local_worker,
  remote_worker,
  tff_config,
  tff_connection,
)


class TffRuntime:
  """Runs phases on TFF workers: a local child process, or remote workers.

  The local worker is started, monitored and ended here. Stock TFF 0.87 computes
  on the CPU only.
  """

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    num_clients: int,
    config: tff_config.TffConfig = tff_config.TffConfig(),
  ):
    """Prepares the computations of an algorithm.

    Args:
      algorithm: The algorithm to run.
      num_clients: Size of the population.
      config: Options.

    Raises:
      ConfigError: If the algorithm cannot be divided among several workers.
    """
    if len(config.workers) > 1:
      aggregation.refuse_processes(algorithm.phases, 'several workers')
    self._algorithm = algorithm
    self._num_clients = num_clients
    workers: Sequence[tff_connection.Worker] = [
      remote_worker.RemoteWorker(
        address, start_timeout_seconds=config.start_timeout_seconds
      )
      for address in config.workers
    ] or [
      local_worker.LocalWorker(
        start_timeout_seconds=config.start_timeout_seconds,
        max_concurrent_computation_calls=config.max_concurrent_calls,
      )
    ]
    self._connections = [tff_connection.Connection(one) for one in workers]
    self._computations: dict[str, federated.FederatedPhase] = {}
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'TffRuntime':
    with contextlib.ExitStack() as stack:
      for connection in self._connections:
        stack.enter_context(connection)
        connection.check_version()
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._stack.close()

  def run(
    self,
    phase: algorithm_lib.Phase,
    server_state: Structure,
    cohort: cohort_lib.Cohort,
  ) -> cohort_lib.PhaseOutput:
    """Runs one phase call, see `cohort.Runtime`.

    Raises:
      RuntimeFailureError: If a worker died or rejected the computation; names
        the worker, with the last output of a local one.
    """
    computations = self.computations_of(phase)
    clients = [
      cohort.client(i, uses_client_state=phase.uses_client_state)
      for i in range(cohort.size)
    ]
    what = f'round {cohort.round_num}, phase {phase.name!r}'
    if len(self._connections) == 1:
      output = self._connections[0].invoke(
        what, computations.whole, server_state, clients
      )
    else:
      output = self._share(what, computations, server_state, clients)
    return cohort_lib.PhaseOutput(
      server_state=cohort_lib.to_numpy(output['server_state']),
      client_states=[
        _stack_states(output['clients'], cohort.call.client_indices)
      ],
      server_metrics=cohort_lib.to_numpy(output['server_metrics']),
      client_metrics=dict(
        cohort_lib.to_numpy(output['client_metrics']['metrics'])
      ),
      num_invalid=int(output['client_metrics']['num_invalid']),
    )

  def computations_of(
    self, phase: algorithm_lib.Phase
  ) -> federated.FederatedPhase:
    """Returns the TFF computations of a phase, traced once."""
    phase_types.check_own(self._algorithm, phase)
    if phase.name not in self._computations:
      types = phase_types.types_of(self._algorithm, phase, self._num_clients)
      self._computations[phase.name] = federated.build_federated_phase(
        phase, types
      )
    return self._computations[phase.name]

  def _share(
    self,
    what: str,
    computations: federated.FederatedPhase,
    server_state: Structure,
    clients: list[composer.Clients],
  ) -> Structure:
    """Runs the client half on all workers at once, the server half on one."""
    share = -(-len(clients) // len(self._connections))
    shares = [clients[i : i + share] for i in range(0, len(clients), share)]

    def run_half(connection, some):
      return connection.invoke(
        what, computations.client_half, server_state, some
      )

    with futures.ThreadPoolExecutor(len(shares)) as pool:
      # Added in the order of the workers, so that timing changes no bit.
      halves = list(pool.map(run_half, self._connections, shares))
    sums = functools.reduce(trees.add, [half['sums'] for half in halves])
    parts = [server_state, cohort_lib.to_numpy(sums)]
    if 'collection' in halves[0]:
      parts.append(
        cohort_lib.concatenate([half['collection'] for half in halves])
      )
    state, metrics = self._connections[0].invoke(
      what, computations.server_half, tuple(parts)
    )
    return {
      'server_state': state,
      'server_metrics': metrics,
      'clients': [one for half in halves for one in half['clients']],
      'client_metrics': sums,
    }


def _stack_states(
  outputs: list[Structure], client_indices: np.ndarray
) -> tuple[np.ndarray, Structure]:
  """Stacks the client states in the cohort's order; TFF guarantees none.

  Raises:
    RuntimeFailureError: If TFF returned other clients than were sent.
  """
  states = {int(one['client_index']): one['client_state'] for one in outputs}
  if sorted(states) != sorted(int(index) for index in client_indices):
    raise errors.RuntimeFailureError(
      f'TFF returned the clients {sorted(states)}, but '
      f'{sorted(map(int, client_indices))} were sent'
    )
  rows = [states[int(index)] for index in client_indices]
  return client_indices, tf.nest.map_structure(
    lambda *leaves: np.stack(leaves), *rows
  )
