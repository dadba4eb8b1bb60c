"""Sequence of algorithms on the same states, one for each period of rounds.

Used for learning-rate schedules; algorithms and runtimes are unaffected. Each
period has phases of its own, because runtimes build one graph for each phase
name. Random draws and metrics use the purpose of a phase
(`core.algorithm.phase_purpose`), so a run whose periods are equal is the run
without periods, bit for bit.
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
  """Returns an algorithm that runs several, each in its period.

  States, models and served models are taken from the first algorithm and must
  be the same for all. `phase_types.check_algorithm` detects states of other
  types, because it checks the phases of all algorithms against the first.

  Args:
    algorithms: One for each period; a single one is returned unchanged.
    period: round_num, from 1 -> index into `algorithms`.
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
  """Returns the name of a phase in a period; `train@2` in the second."""
  if not number:
    return phase
  return f'{phase}{algorithm_lib.PERIOD_MARK}{number + 1}'
