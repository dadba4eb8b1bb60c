"""One algorithm after another on the same states, such as one for each rate.

The algorithms know nothing of it, nor do runtimes. Each has phases of its own,
as graphs are made once for each name; what draws and what is measured goes by
the purpose of a phase (`core.algorithm.phase_purpose`), so a run that changes
nothing between two periods is the run without them, bit for bit.
"""

import dataclasses
from collections.abc import Callable, Sequence

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.rounds import plans


def in_turn(
  algorithms: Sequence[algorithm_lib.FederatedAlgorithm],
  period: Callable[[int], int],
) -> algorithm_lib.FederatedAlgorithm:
  """Returns an algorithm with the rounds of several, each in its period.

  The states, the models and what serves are the first one's: they must be those
  of all. `phase_types.check_algorithm` finds states of other types, as it
  checks the phases of all against the first one's.

  Args:
    algorithms: One for each period; if there is but one, it is returned as it
      is.
    period: round_num, from 1 -> which of them, from 0.
  """
  first = algorithms[0]
  if len(algorithms) == 1:
    return first

  def plan_round(
    server_state: Structure,
    population: algorithm_lib.Population,
    round_num: int,
    seed: int,
  ) -> algorithm_lib.RoundPlan:
    number = period(round_num)
    plan = algorithms[number].plan_round(
      server_state, population, round_num, seed
    )
    yield from plans.map_calls(
      plan,
      lambda call: dataclasses.replace(call, phase=_name(call.phase, number)),
    )

  phases = {
    _name(name, number): phase._replace(name=_name(name, number))
    for number, algorithm in enumerate(algorithms)
    for name, phase in algorithm.phases.items()
  }
  return dataclasses.replace(first, phases=phases, plan_round=plan_round)


def _name(phase: str, number: int) -> str:
  """Returns the name of a phase in a period, of the second `train@2`."""
  if not number:
    return phase
  return f'{phase}{algorithm_lib.PERIOD_MARK}{number + 1}'
