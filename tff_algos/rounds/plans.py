"""Plans of rounds that are made of other plans."""

from collections.abc import Callable

from tff_algos.core import algorithm as algorithm_lib


def map_calls(
  plan: algorithm_lib.RoundPlan,
  change: Callable[[algorithm_lib.PhaseCall], algorithm_lib.PhaseCall],
) -> algorithm_lib.RoundPlan:
  """Yields the phase calls of a plan, changed; it is sent what comes back."""
  call = next(plan, None)
  while call is not None:
    server_state = yield change(call)
    try:
      call = plan.send(server_state)
    except StopIteration:
      call = None
