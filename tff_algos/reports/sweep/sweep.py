"""Sweep: runs read from files, grouped by cell, and statistics over seeds."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from tff_algos.core import errors
from tff_algos.evaluation import round_time, summaries
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import measures, plan
from tff_algos.reports.sweep import target as target_lib

_CONFIDENCE = 0.95


class Spread(NamedTuple):
  """Mean and deviation of a metric over seeds.

  Attributes:
    mean: Mean over seeds with finite values, of all their clients; NaN if there
      are none.
    std: Sample standard deviation; NaN with fewer than two seeds.
    num: Number of these seeds.
  """

  mean: float
  std: float
  num: int


class Rate(NamedTuple):
  """Success rate of cluster recovery.

  Attributes:
    successes: Runs that recovered the clusters.
    num: Runs for which recovery is defined.
    low: Lower end of Wilson's 95 % interval of the rate (Wilson, 1927).
    high: Its upper end.
  """

  successes: int
  num: int
  low: float
  high: float


class Curve(NamedTuple):
  """A metric over the rounds that all seeds have.

  Attributes:
    rounds: float64 `[n]`, ascending.
    sent: Cumulative communication, mean over seeds, float64 `[n]`; None if it
      was not counted.
    mean: Mean over seeds, float64 `[n]`.
    std: Sample standard deviation, float64 `[n]`; zeros with one seed.
    diverged: First round after the last of `rounds` in which a seed has a value
      that is not finite, at least for a client; None if there is none.
  """

  rounds: np.ndarray
  sent: np.ndarray | None
  mean: np.ndarray
  std: np.ndarray
  diverged: int | None


@dataclasses.dataclass(frozen=True)
class Cell:
  """The runs that differ by seed only.

  Attributes:
    label: Label of the cell.
    values: One value for each axis of the sweep.
    seeds: Seeds of the finished runs.
    runs: Finished runs; at least one.
    target: Target score; None for none.
  """

  label: str
  values: tuple[Any, ...]
  seeds: tuple[int, ...]
  runs: tuple[run_lib.Run, ...]
  target: target_lib.Target | None = None

  @functools.cached_property
  def last(self) -> tuple[dict[str, float], ...]:
    """Returns the metrics of the last round, one mapping per run."""
    points = tuple(measures.last(run) for run in self.runs)
    if self.target is not None:
      for run, point in zip(self.runs, points, strict=True):
        point.update(target_lib.spent_until(run, self.target))
    return points

  @functools.cached_property
  def best(self) -> tuple[dict[str, float], ...]:
    """Returns metrics of the best round by validation, one mapping per run."""
    return tuple(measures.best(run) for run in self.runs)

  @functools.cached_property
  def rate(self) -> Rate | None:
    """Returns the success rate of cluster recovery; None if undefined."""
    found = [measures.found_clusters(run) for run in self.runs]
    known = [value for value in found if value is not None]
    if not known:
      return None
    interval = stats.binomtest(sum(known), len(known)).proportion_ci(
      _CONFIDENCE, 'wilson'
    )
    return Rate(sum(known), len(known), interval.low, interval.high)

  def curve(self, name: str) -> Curve | None:
    """Returns a metric over rounds; None if a run lacks it."""
    series = [one for run in self.runs if (one := run.series(name)) is not None]
    if len(series) < len(self.runs):
      return None
    rounds = functools.reduce(np.intersect1d, [one.rounds for one in series])
    if not rounds.size:
      return None
    values = np.stack([_at(one, rounds) for one in series])
    costs = [cost for run in self.runs if (cost := run.sent()) is not None]
    sent = None
    if len(costs) == len(self.runs):
      sent = np.mean([_at(cost, rounds) for cost in costs], axis=0)
    std = np.zeros(len(rounds))
    if len(values) > 1:
      std = values.std(axis=0, ddof=1)
    diverged = [one.diverged for one in series if one.diverged is not None]
    return Curve(
      rounds, sent, values.mean(axis=0), std, min(diverged, default=None)
    )


@dataclasses.dataclass(frozen=True)
class Sweep:
  """A sweep with its finished runs.

  Attributes:
    workdir: Folder of the sweep.
    plan: Plan of the sweep.
    cells: Cells with a finished run, in the order of the plan.
  """

  workdir: pathlib.Path
  plan: plan.Plan
  cells: tuple[Cell, ...]

  @property
  def has_rates(self) -> bool:
    """Returns whether any cell has a success rate of cluster recovery."""
    return any(cell.rate is not None for cell in self.cells)

  @property
  def example(self) -> run_lib.Run:
    """Returns a run, for the name and the direction of scores."""
    return self.cells[0].runs[0]

  @property
  def measures(self) -> tuple[measures.Measure, ...]:
    """Returns the shown measures that at least one run has."""
    target = self.cells[0].target
    shown = measures.shown(self.example.score_name)
    return tuple(
      measure
      for measure in (*shown, *(target.measures if target else ()))
      if any(
        np.isfinite(point.get(measure.name, np.nan))
        for cell in self.cells
        for point in cell.last
      )
    )

  def groups(self, position: int) -> dict[str, list[Cell]]:
    """Returns the cells by the label of their values on all axes but one.

    Args:
      position: Of that axis.
    """
    others = lambda row: row[:position] + row[position + 1 :]
    axes = others(self.plan.axes)
    found: dict[str, list[Cell]] = {}
    for cell in self.cells:
      label = plan.label(axes, others(cell.values))
      found.setdefault(label, []).append(cell)
    return found


def spread(points: Sequence[dict[str, float]], name: str) -> Spread:
  """Returns mean and deviation of a metric.

  Args:
    points: The metrics of each run.
    name: Name of the metric; runs may lack it.
  """
  return spread_of([summaries.whole(point, name) for point in points])


def spread_of(scores: Sequence[float] | np.ndarray) -> Spread:
  """Returns mean and deviation of the finite ones of some scores."""
  values = np.array(scores, np.float64)
  values = values[np.isfinite(values)]
  return Spread(
    float(values.mean()) if len(values) else np.nan,
    float(values.std(ddof=1)) if len(values) > 1 else np.nan,
    len(values),
  )


def read(
  workdir: str | os.PathLike[str],
  target: target_lib.Target | None = None,
  clock: round_time.Clock = round_time.Clock(),
  planned: plan.Plan | None = None,
) -> Sweep:
  """Reads the finished runs of a sweep.

  Args:
    workdir: Folder of the sweep.
    target: Target score; None for none.
    clock: Virtual clock of the picture of time.
    planned: Plan of the sweep; None for that of its folder.

  Raises:
    DataError: If there is no plan or no finished run, a file is damaged, or
      some runs classify and others regress.
  """
  workdir = pathlib.Path(workdir)
  planned = planned or plan.read(workdir)
  found: dict[tuple[Any, ...], list[tuple[int, run_lib.Run]]] = {}
  for run in planned.runs:
    folder = workdir / run.folder
    if not run.error and (folder / 'evaluation' / 'summary.json').is_file():
      found.setdefault(run.values, []).append(
        (run.seed, run_lib.read(folder, clock))
      )
  if not found and planned.is_comparison:
    raise errors.DataError(
      f'none of the runs that {workdir} compares is evaluated, such as '
      f'{planned.runs[0].folder}; run binaries.evaluate for them first.'
    )
  if not found:
    reasons = [
      f' ({run.folder}: {run.error})' for run in planned.runs if run.error
    ]
    raise errors.DataError(
      f'{workdir} has no finished run{"".join(reasons[:1])}; run '
      'binaries.sweep again to go on.'
    )
  cells = tuple(
    Cell(
      plan.label(planned.axes, values),
      values,
      tuple(seed for seed, _ in runs),
      tuple(run for _, run in runs),
      target,
    )
    for values, runs in found.items()
  )
  scores = {run.score_name: run.workdir for cell in cells for run in cell.runs}
  if len(scores) > 1:
    told = ', '.join(f'{name} ({folder})' for name, folder in scores.items())
    raise errors.DataError(
      f'the runs of {workdir} have different scores, {told}; compare runs of '
      'one task.'
    )
  return Sweep(workdir, planned, cells)


def _at(series: run_lib.Series, rounds: np.ndarray) -> np.ndarray:
  """Returns the values at rounds that the series has."""
  return series.values[np.searchsorted(series.rounds, rounds)]
