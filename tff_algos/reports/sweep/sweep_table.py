"""Tables of a sweep: one row per run, one row per cell, and text."""

import math
import os
from collections.abc import Sequence
from typing import Any

from tff_algos.core import errors
from tff_algos.reports.sweep import measures, plan
from tff_algos.reports.sweep import sweep as sweep_lib

ABSENT = '–'
_BEST = 'best_by_validation/'


def run_rows(sweep: sweep_lib.Sweep) -> list[dict[str, Any]]:
  """Returns one row for each finished run, for `sweep.csv`.

  Its columns: the axes, the seed, the folder, whether clusters were recovered,
  all metrics of the last round and, with the prefix `best_by_validation/`, of
  the best round.
  """
  rows = []
  for cell in sweep.cells:
    for seed, run, last, best in zip(
      cell.seeds, cell.runs, cell.last, cell.best, strict=True
    ):
      rows.append(
        {
          **_place(sweep, cell),
          'seed': seed,
          'folder': os.path.relpath(run.workdir, sweep.workdir),
          'found_clusters': measures.found_clusters(run),
          **last,
          **{f'{_BEST}{name}': value for name, value in best.items()},
        }
      )
  return rows


def cell_rows(sweep: sweep_lib.Sweep) -> list[dict[str, Any]]:
  """Returns one row for each cell, for `sweep_summary.csv`.

  Its columns: the axes, `num_runs`, the success rate with its interval, and
  for each metric `<metric> mean`, `std` and `num`, the seeds that have it; the
  metrics of the best round by validation likewise. Metrics of clusters by index
  are left out.
  """
  rows = []
  for cell in sweep.cells:
    row = {**_place(sweep, cell), 'num_runs': len(cell.runs)}
    rate = cell.rate
    if rate is not None:
      row['successes'] = rate.successes
      row['success_rate'] = rate.successes / rate.num
      row['success_rate low'] = rate.low
      row['success_rate high'] = rate.high
    for start, points in (('', cell.last), (_BEST, cell.best)):
      for name in _comparable(points):
        spread = sweep_lib.spread(points, name)
        for key, value in spread._asdict().items():
          row[f'{start}{name} {key}'] = value
    rows.append(row)
  return rows


def console(sweep: sweep_lib.Sweep, prefixes: Sequence[str]) -> str:
  """Returns the last round's means and deviations, a block for each cell.

  Args:
    sweep: The runs.
    prefixes: Prefixes of the metrics; empty for those of the report.

  Raises:
    DataError: If no metric begins with one of the prefixes.
  """
  names = dict.fromkeys(
    name for cell in sweep.cells for name in _comparable(cell.last)
  )
  for prefix in prefixes:
    if not any(name.startswith(prefix) for name in names):
      starts = dict.fromkeys(name.partition('/')[0] for name in names)
      raise errors.DataError(
        f'--metrics={prefix}: no metric of the last round that can be averaged '
        f'over runs begins so; they begin with {", ".join(starts)}'
      )
  lines = []
  for cell in sweep.cells:
    rate = cell.rate
    heading = plan.seeds_text(len(cell.runs))
    if rate is not None:
      heading += f'; clusters found (95 % interval): {rate_text(rate)}'
    lines.append(f'{cell.label or sweep.plan.name}  ({heading})')
    lines.append(f'{"mean":>12} {"std":>11}  metric')
    for name in _printed(sweep, cell, prefixes):
      spread = sweep_lib.spread(cell.last, name)
      few = fewer_seeds(cell.last, name)
      lines.append(
        f'{_number(spread.mean):>12} {_number(spread.std):>11}  {name}{few}'
      )
    lines.append('')
  return '\n'.join(lines)


def rate_text(rate: sweep_lib.Rate) -> str:
  """Returns a success rate as text, with its interval in brackets."""
  return (
    f'{rate.successes} of {rate.num} ({100 * rate.low:.0f} to '
    f'{100 * rate.high:.0f} %)'
  )


def spread_text(
  sweep: sweep_lib.Sweep,
  measure: measures.Measure,
  spread: sweep_lib.Spread,
) -> str:
  """Returns mean and deviation as text, without the unit."""
  if not spread.num:
    return ABSENT
  return measure.text(sweep.example, spread.mean, spread.std)


def score_text(sweep: sweep_lib.Sweep, spread: sweep_lib.Spread) -> str:
  """Returns mean and deviation of a score as text, without the unit."""
  return spread_text(sweep, measures.Measure('', ''), spread)


def fewer_seeds(points: Sequence[dict[str, float]], name: str) -> str:
  """Returns `' (2 of 3 seeds)'` if a mean is not over all seeds.

  Args:
    points: Metrics of each run.
    name: Name of the metric.

  Returns:
    Empty if the metric is finite in all runs, for all clients, or given in
    none.
  """
  num = sweep_lib.spread(points, name).num
  is_given = any(point.get(name) is not None for point in points)
  if num == len(points) or not is_given:
    return ''
  return f' ({num} of {plan.seeds_text(len(points))})'


def _place(sweep: sweep_lib.Sweep, cell: sweep_lib.Cell) -> dict[str, Any]:
  keys = [axis.key for axis in sweep.plan.axes]
  return dict(zip(keys, cell.values, strict=True))


def _printed(
  sweep: sweep_lib.Sweep, cell: sweep_lib.Cell, prefixes: Sequence[str]
) -> list[str]:
  names = _comparable(cell.last)
  if prefixes:
    return [name for name in names if name.startswith(tuple(prefixes))]
  return [one.name for one in sweep.measures if one.name in names]


def _comparable(points: Sequence[dict[str, float]]) -> list[str]:
  """Returns the metrics that are comparable between runs, in their order."""
  names = dict.fromkeys(name for point in points for name in point)
  return [name for name in names if measures.may_be_averaged(name)]


def _number(value: float) -> str:
  return f'{value:.4g}' if math.isfinite(value) else ABSENT
