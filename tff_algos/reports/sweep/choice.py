"""Model selection: the best value of an axis by validation scores.

A number of clusters selected by test scores makes these scores optimistically
biased. So selection uses separate validation examples or unseen clients; test
scores of the participating clients then estimate the performance of the
selected value.
"""

from collections.abc import Sequence

import numpy as np

from tff_algos.core import errors
from tff_algos.evaluation import summaries
from tff_algos.reports.sweep import plan, sweep_table
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

  The best value has the best mean over the seeds that all values have; ties go
  to the earlier one.

  Raises:
    DataError: If there is no such axis.
  """
  position = check(sweep.plan.axes, question)
  criterion = plan.CRITERIA[question.by]
  name = f'{criterion.metric}/{sweep.example.score_name}'
  found = []
  for where, cells in sweep.groups(position).items():
    told = _tell(sweep, position, cells, name, criterion)
    found.append(f'{where}: {told}' if where else told)
  return found


def _tell(sweep, position, cells, name, criterion) -> str:
  """Returns the sentence for one combination of values of the other axes."""
  axis = sweep.plan.axes[position]
  label = lambda value: plan.label([axis], [value])
  scored = {cell.values[position]: _by_seed(cell, name) for cell in cells}
  scored = {value: scores for value, scores in scored.items() if scores}
  if not scored:
    return f'{axis.key} cannot be selected: no dataset has {criterion.needs}.'
  # A mean over the other seeds would choose what may diverge.
  known = {
    value: scores
    for value, scores in scored.items()
    if np.isfinite([*scores.values()]).all()
  }
  diverged = ', '.join(label(value) for value in scored if value not in known)
  if not known:
    return f'{axis.key} cannot be selected: every value diverged in some seed.'
  # While a sweep runs, some cells have fewer seeds.
  seeds = sorted(set.intersection(*map(set, known.values())))
  if not seeds:
    return f'{axis.key} cannot be selected: no seed has a run of every value.'
  common = {
    value: np.array([scores[seed] for seed in seeds])
    for value, scores in known.items()
  }
  ahead = 1 if sweep.example.higher_is_better else -1
  best = max(common, key=lambda value: ahead * common[value].mean())
  behind = ', '.join(
    f'{label(value)} by {_gap_text(sweep, ahead * (common[best] - scores))}'
    for value, scores in common.items()
    if value != best
  )
  unit = ' %' if sweep.example.higher_is_better else ''
  count = plan.seeds_text(len(seeds))
  if any(len(scores) > len(seeds) for scores in known.values()):
    count += ' that all values have'
  told = (
    f'{label(best)} is the best by {criterion.title} after the last round: '
    f'{_text(sweep, common[best])}{unit} ({count}).'
  )
  if behind:
    interval = ''
    if len(seeds) >= summaries.LEAST_SEEDS:
      interval = ' (with the 95 % interval of the mean gap)'
    told += f' Worse on the same seeds{interval}: {behind}.'
  return f'{told} Diverged in some seed: {diverged}.' if diverged else told


def _by_seed(cell: sweep_lib.Cell, name: str) -> dict[int, float]:
  """Returns seed -> score of the runs with one, finite or not.

  Under an attack it is that of honest clients, where it is known: attackers
  train on labels that no evaluation has. It is NaN, as of a run that diverged,
  if a client has none that is finite. Where no client has examples it is NaN,
  too: then none of them has one that is not finite.
  """
  honest = name.replace('participating', 'attack/honest', 1)
  found = {}
  for seed, point in zip(cell.seeds, cell.last, strict=True):
    known = honest if honest in point else name
    value = point.get(known)
    if value is None or (
      np.isnan(value) and point.get(f'{known}_num_nan') == 0
    ):
      continue
    found[seed] = summaries.whole(point, known)
  return found


def _gap_text(sweep: sweep_lib.Sweep, gaps: np.ndarray) -> str:
  """Returns the mean of paired gaps as text, with its t interval.

  With too few for one, it is mean and deviation.
  """
  if len(gaps) < summaries.LEAST_SEEDS:
    return _text(sweep, gaps)
  mean, low, high = (
    _text(sweep, [value]) for value in summaries.mean_interval(gaps)
  )
  return f'{mean} ({low} to {high})'


def _text(sweep: sweep_lib.Sweep, values: Sequence[float] | np.ndarray) -> str:
  """Returns mean and deviation of finite values as text."""
  return sweep_table.score_text(sweep, sweep_lib.spread_of(values))
