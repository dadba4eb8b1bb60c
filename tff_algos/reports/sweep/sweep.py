"""A sweep as its files tell it: runs gathered in cells, and their spread."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from tff_algos.core import errors
from tff_algos.evaluation import round_time
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import measures, plan
from tff_algos.reports.sweep import target as target_lib

LEAST_ARI = 0.9
_CONFIDENCE = 0.95


class Spread(NamedTuple):
  """A metric over seeds.

  Attributes:
    mean: Of the seeds where it is finite; NaN if there are none.
    std: Sample standard deviation; NaN with fewer than two.
    num: How many seeds those are.
  """

  mean: float
  std: float
  num: int


class Rate(NamedTuple):
  """How often clusters were found.

  Attributes:
    successes: Runs that found them.
    num: Runs that could.
    low: Lower end of Wilson's 95 % interval of the rate (Wilson, 1927).
    high: Its upper end.
  """

  successes: int
  num: int
  low: float
  high: float


class Curve(NamedTuple):
  """A metric over rounds, for the rounds that all seeds have.

  Attributes:
    rounds: float64 `[n]`, ascending.
    sent: Numbers sent up to each round, mean over seeds, float64 `[n]`; None
      if it was not counted.
    mean: Over seeds, float64 `[n]`.
    std: Sample standard deviation, float64 `[n]`; zeros with one seed.
  """

  rounds: np.ndarray
  sent: np.ndarray | None
  mean: np.ndarray
  std: np.ndarray


@dataclasses.dataclass(frozen=True)
class Cell:
  """The runs that differ by seed only.

  Attributes:
    label: What it is called.
    values: One value for each axis of the sweep.
    seeds: Of the runs that are finished.
    runs: Finished; at least one.
    target: A score that they are to reach; None for none.
    least_ari: See `measures.found_clusters`.
  """

  label: str
  values: tuple[Any, ...]
  seeds: tuple[int, ...]
  runs: tuple[run_lib.Run, ...]
  target: target_lib.Target | None = None
  least_ari: float = LEAST_ARI

  @functools.cached_property
  def last(self) -> tuple[dict[str, float], ...]:
    """Returns the metrics of the last round, one mapping a run."""
    points = tuple(measures.last(run) for run in self.runs)
    if self.target is not None:
      for run, point in zip(self.runs, points, strict=True):
        point.update(target_lib.spent_until(run, self.target))
    return points

  @functools.cached_property
  def best(self) -> tuple[dict[str, float], ...]:
    """Returns the metrics of the best round by validation, one a run."""
    return tuple(measures.best(run) for run in self.runs)

  @functools.cached_property
  def rate(self) -> Rate | None:
    """Returns how many runs found clusters; None if none could."""
    found = [measures.found_clusters(run, self.least_ari) for run in self.runs]
    known = [value for value in found if value is not None]
    if not known:
      return None
    interval = stats.binomtest(sum(known), len(known)).proportion_ci(
      _CONFIDENCE, 'wilson'
    )
    return Rate(sum(known), len(known), interval.low, interval.high)

  def curve(self, name: str) -> Curve | None:
    """Returns a metric over rounds; None if a run does not have it."""
    series = [run.series(name) for run in self.runs]
    if any(one is None for one in series):
      return None
    rounds = functools.reduce(np.intersect1d, [one.rounds for one in series])  # pyright: ignore[reportOptionalMemberAccess]
    if not rounds.size:
      return None
    values = np.stack([_at(one, rounds) for one in series])  # pyright: ignore[reportArgumentType]
    costs = [measures.sent(run) for run in self.runs]
    sent = None
    if all(cost is not None for cost in costs):
      sent = np.mean([_at(cost, rounds) for cost in costs], axis=0)  # pyright: ignore[reportArgumentType]
    std = np.zeros(len(rounds))
    if len(values) > 1:
      std = values.std(axis=0, ddof=1)
    return Curve(rounds, sent, values.mean(axis=0), std)


@dataclasses.dataclass(frozen=True)
class Sweep:
  """Runs that are compared.

  Attributes:
    workdir: Its folder.
    plan: What was asked for.
    cells: Those with a finished run, in the plan's order.
  """

  workdir: pathlib.Path
  plan: plan.Plan
  cells: tuple[Cell, ...]

  @property
  def least_ari(self) -> float:
    """Returns the adjusted Rand index from which on clusters count as found."""
    return self.cells[0].least_ari

  @property
  def example(self) -> run_lib.Run:
    """Returns a run that tells what scores are called and which are good."""
    return self.cells[0].runs[0]

  @property
  def measures(self) -> tuple[measures.Measure, ...]:
    """Returns the shown measures that some run has."""
    target = self.cells[0].target
    shown = measures.shown(self.example.score_name)
    return tuple(
      measure
      for measure in (*shown, *(target.measures if target else ()))
      if any(spread(cell.last, measure.name).num for cell in self.cells)
    )


def spread(points: Sequence[dict[str, float]], name: str) -> Spread:
  """Returns mean and deviation of a metric.

  Args:
    points: The metrics of each run.
    name: Of the metric; a run may lack it.
  """
  values = np.array([point.get(name, np.nan) for point in points], np.float64)
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
  least_ari: float = LEAST_ARI,
) -> Sweep:
  """Reads the runs of a sweep that are finished.

  Args:
    workdir: Its folder.
    target: A score that they are to reach; None for none.
    clock: Of the picture of time.
    least_ari: See `measures.found_clusters`.

  Raises:
    DataError: If there is no plan or no finished run, a file is damaged, or
      some runs classify and others regress.
  """
  workdir = pathlib.Path(workdir)
  planned = plan.read(workdir)
  found: dict[tuple[Any, ...], list[tuple[int, run_lib.Run]]] = {}
  for run in planned.runs:
    folder = workdir / run.folder
    if not run.error and (folder / 'evaluation' / 'summary.json').is_file():
      found.setdefault(run.values, []).append(
        (run.seed, run_lib.read(folder, clock))
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
      least_ari,
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
