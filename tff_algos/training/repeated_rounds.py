"""One round, several times from the same state, with other draws.

How much the models differ that a round may make: Chen and Qiu (2025),
arXiv:2503.08652, section 7.1. `metrics.kernel_variance` measures it.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.runtimes import cohort


class Runtime(Protocol):
  """Runs one phase call."""

  def run(self, phase: algorithm_lib.Phase, server_state: Structure, clients):
    """Returns the `PhaseOutput`."""


def repeat(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: Runtime,
  server_state: Structure,
  load_states: Callable[[np.ndarray], Structure],
  source: cohort.ClientSource,
  *,
  round_num: int,
  seeds: Iterable[int],
) -> list[Structure]:
  """Returns the server state after the round, for each seed.

  Cohorts, orders of examples and whatever else is random differ. No client
  state is kept, not even between the phases of a round: for rounds of one
  phase.

  Args:
    algorithm: Whose round.
    runtime: Who runs it.
    server_state: Before the round, NumPy.
    load_states: Client indices -> their states before the round, stacked.
    source: The population.
    round_num: From 1.
    seeds: One for each repeat; that of the run gives what the run would make.
  """
  after = []
  for seed in seeds:
    state = server_state
    plan = algorithm.plan_round(state, source.population, round_num, seed)
    call = next(plan)
    while call is not None:
      clients = cohort.Cohort(call, round_num, seed, source, load_states)
      phase = algorithm.phases[call.phase]
      state = runtime.run(phase, state, clients).server_state  # pyright: ignore[reportAttributeAccessIssue]
      try:
        call = plan.send(state)
      except StopIteration:
        call = None
    after.append(state)
  return after
