"""Trials of a search: values, objective, outcome."""

from typing import Any, NamedTuple

from tff_algos.evaluation import summaries
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import sweep_table

FINISHED = 'finished'


class Trial(NamedTuple):
  """A trial.

  Attributes:
    number: Its number, from 0.
    values: Value of each searched key.
    objective: Objective over the finished seeds with a finite one.
    outcome: `FINISHED`, all seeds with a finite objective, or what happened
      instead.
  """

  number: int
  values: tuple[Any, ...]
  objective: sweep_lib.Spread
  outcome: str


def read(sweep: sweep_lib.Sweep) -> list[Trial]:
  """Returns the trials of a search, in the order of their numbers."""
  search = sweep.plan.search
  if search is None:
    return []
  cells = {cell.values: cell for cell in sweep.cells}
  planned: dict[tuple[Any, ...], list[plan_lib.PlannedRun]] = {}
  for run in sweep.plan.runs:
    planned.setdefault(run.values, []).append(run)
  found = []
  for (number, *values), runs in planned.items():
    cell = cells.get((number, *values))
    points = cell.last if cell else ()
    objective = sweep_lib.spread_of(
      [summaries.whole(point, search.metric) for point in points]
    )
    outcome = _outcome(runs, len(points), objective.num, search.num_seeds)
    found.append(Trial(number, tuple(values), objective, outcome))
  return sorted(found, key=lambda trial: trial.number)


def ranked(sweep: sweep_lib.Sweep) -> list[Trial]:
  """Returns the finished trials, the best first."""
  search = sweep.plan.search
  known = [trial for trial in read(sweep) if trial.outcome == FINISHED]
  sign = -1 if search and search.higher_is_better else 1
  return sorted(known, key=lambda trial: sign * trial.objective.mean)


def rows(sweep: sweep_lib.Sweep) -> list[dict[str, str]]:
  """Returns title -> text of each trial: the ranked ones, then the others."""
  best = ranked(sweep)
  others = [trial for trial in read(sweep) if trial not in best]
  names = [axis.name for axis in sweep.plan.axes[1:]]
  return [
    {
      'trial': str(trial.number),
      **dict(zip(names, map(plan_lib.value_text, trial.values), strict=True)),
      'objective': _spread_text(trial.objective),
      'outcome': trial.outcome,
    }
    for trial in (*best, *others)
  ]


def text(sweep: sweep_lib.Sweep) -> str:
  """Returns the table of all trials as text."""
  found = rows(sweep)
  table = [[*found[0]], *([*row.values()] for row in found)]
  return '\n'.join(plan_lib.aligned(table))


def _spread_text(spread: sweep_lib.Spread) -> str:
  if not spread.num:
    return sweep_table.ABSENT
  deviation = f' ± {spread.std:.4g}' if spread.num > 1 else ''
  return f'{spread.mean:.4g}{deviation}'


def _outcome(
  runs: list[plan_lib.PlannedRun],
  num_finished: int,
  num_finite: int,
  num_seeds: int,
) -> str:
  for run in runs:
    if run.error:
      return f'refused: {run.error}'
    if run.pruned_round is not None:
      return f'pruned after round {run.pruned_round} of seed {run.seed}'
  if num_finished < num_seeds:
    return 'not finished'
  # The search has failed such a trial.
  if num_finite < num_seeds:
    seeds = plan_lib.seeds_text(num_seeds)
    missing = num_seeds - num_finite
    return f'no finite objective of all clients in {missing} of {seeds}'
  return FINISHED
