"""Iteration over the phase calls of a round plan."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure


class Contribution(NamedTuple):
  """Client input of a phase in which not all contribute who train.

  Attributes:
    counts: 1 for a client that contributes, else 0, float32 `[]`.
  """

  counts: Any


class Calls:
  """Iterates over a plan's phase calls, each planned from the current state.

      calls = plans.Calls(plan, server_state)
      for call in calls:
        calls.server_state = run(call)

  Attributes:
    server_state: State before the current call; set it to the state after that
      call, which is sent back to the plan.
  """

  def __init__(self, plan: algorithm_lib.RoundPlan, server_state: Structure):
    """Takes an unstarted plan and the server state before its first call."""
    self.server_state = server_state
    self._plan = plan

  def __iter__(self) -> Iterator[algorithm_lib.PhaseCall]:
    """Yields the calls in order."""
    call = next(self._plan, None)
    while call is not None:
      yield call
      try:
        call = self._plan.send(self.server_state)
      except StopIteration:
        call = None


def map_calls(
  plan: algorithm_lib.RoundPlan,
  change: Callable[[algorithm_lib.PhaseCall], algorithm_lib.PhaseCall],
) -> algorithm_lib.RoundPlan:
  """Returns the plan with `change` applied to each phase call.

  Args:
    plan: An unstarted plan.
    change: Phase call -> the call in its place.
  """
  calls = Calls(plan, None)
  for call in calls:
    calls.server_state = yield change(call)
