"""Model selection: the best value of an axis by validation scores.

A number of clusters selected by test scores makes these scores optimistically
biased. So selection uses separate validation examples or unseen clients; test
scores of the participating clients then estimate the performance of the
selected value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_algos.core import errors
from tff_algos.reports.sweep import measures, plan
from tff_algos.reports.sweep import sweep as sweep_lib


def check(axes: Sequence[plan.Axis], question: plan.Question) -> int:
  """Returns the position of the axis of a question.

  Raises:
    DataError: If there is no such axis.
  """
  keys = [axis.key for axis in axes]
  if question.key not in keys:
    raise errors.DataError(
      f'--choose={question.key} must be what the runs differ by, which is '
      f'{", ".join(keys) or "their seed alone"}'
    )
  return keys.index(question.key)


def sentences(sweep: sweep_lib.Sweep, question: plan.Question) -> list[str]:
  """Returns one sentence for each combination of values of the other axes.

  The best value has the best mean over seeds; ties go to the earlier one.

  Raises:
    DataError: If there is no such axis.
  """
  position = check(sweep.plan.axes, question)
  criterion = plan.CRITERIA[question.by]
  name = f'{criterion.metric}/{sweep.example.score_name}'
  others = lambda row: row[:position] + row[position + 1 :]
  groups: dict[tuple[Any, ...], list[sweep_lib.Cell]] = {}
  for cell in sweep.cells:
    groups.setdefault(others(cell.values), []).append(cell)
  found = []
  for values, cells in groups.items():
    where = plan.label(others(sweep.plan.axes), values)
    told = _tell(sweep, position, cells, name, criterion)
    found.append(f'{where}: {told}' if where else told)
  return found


def _tell(sweep, position, cells, name, criterion) -> str:
  """Returns the sentence for one combination of values of the other axes."""
  axis = sweep.plan.axes[position]
  label = lambda cell: plan.label([axis], [cell.values[position]])
  with_scores = [
    cell for cell in cells if any(name in point for point in cell.last)
  ]
  if not with_scores:
    return f'{axis.key} cannot be selected: no dataset has {criterion.needs}.'
  # A mean over the other seeds would choose what may diverge.
  known = [
    cell
    for cell in with_scores
    if all(np.isfinite(point.get(name, 0.0)) for point in cell.last)
  ]
  diverged = ', '.join(label(cell) for cell in with_scores if cell not in known)
  if not known:
    return f'{axis.key} cannot be selected: every value diverged in some seed.'
  mean = lambda cell: sweep_lib.spread(cell.last, name).mean
  ahead = 1 if sweep.example.higher_is_better else -1
  best = max(known, key=lambda cell: ahead * mean(cell))
  measure = measures.Measure(name, '')
  text = lambda spread: measure.text(sweep.example, spread.mean, spread.std)
  spread = sweep_lib.spread(best.last, name)
  behind = ', '.join(
    f'{label(cell)} by {text(gap)}'
    for cell in known
    if cell is not best and (gap := _gap(best, cell, name, ahead)).num
  )
  unit = ' %' if sweep.example.higher_is_better else ''
  seeds = f'{spread.num} seed' + 's' * (spread.num != 1)
  told = (
    f'{label(best)} is the best by {criterion.title} after the last round: '
    f'{text(spread)}{unit} ({seeds}).'
  )
  if behind:
    told += f' Worse on the same seeds: {behind}.'
  return f'{told} Diverged in some seed: {diverged}.' if diverged else told


def _gap(
  best: sweep_lib.Cell, other: sweep_lib.Cell, name: str, ahead: int
) -> sweep_lib.Spread:
  """Returns by how much a cell is worse, over common seeds.

  `ahead` is 1 if larger scores are better, else -1.
  """
  scores = [
    {seed: point.get(name, np.nan) for seed, point in zip(*pair, strict=True)}
    for pair in ((best.seeds, best.last), (other.seeds, other.last))
  ]
  gaps = [
    {name: ahead * (scores[0][seed] - value)}
    for seed, value in scores[1].items()
    if seed in scores[0]
  ]
  return sweep_lib.spread(gaps, name)
