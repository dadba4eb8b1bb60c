"""Rounds and communication of a run until a target score is reached."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tff_algos.core import errors
from tff_algos.evaluation import summaries
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import measures

ROUNDS = 'rounds_to_target'
UPLINK = 'cost/uplink_floats_to_target'
TOTAL = 'cost/total_floats_to_target'


class Target(NamedTuple):
  """A target score.

  Attributes:
    metric: Column of `metrics.csv`.
    value: Target value: an upper bound of errors and losses, a lower bound of
      all other metrics.
    is_share: Whether `value` is a share of the run's final value, in (0, 1];
      the target of errors and losses is the final value divided by it.
  """

  metric: str
  value: float
  is_share: bool = False

  @property
  def measures(self) -> tuple[measures.Measure, ...]:
    """Returns the measures of the target for tables and pictures."""
    goal = f'{self.metric} = {self.value:g}'
    if self.is_share:
      falls = summaries.is_error(self.metric)
      share = 1 / self.value if falls else self.value
      goal = f'{100 * share:.4g} % of the last {self.metric}'
    return (
      measures.Measure(ROUNDS, f'rounds until {goal}', 'rounds'),
      measures.Measure(UPLINK, f'sent up until {goal}', 'floats'),
      measures.Measure(TOTAL, f'sent both ways until {goal}', 'floats'),
    )


def parse(text: str) -> Target:
  """Returns the target of `METRIC=VALUE` or `METRIC=PERCENT%`.

  Raises:
    ConfigError: If the text has another form.
  """
  metric, _, value = text.rpartition('=')
  is_share = value.endswith('%')
  try:
    number = float(value.removesuffix('%')) / (100 if is_share else 1)
  except ValueError:
    number = np.nan
  fits = 0 < number <= 1 if is_share else np.isfinite(number)
  if not metric or not fits:
    raise errors.ConfigError(
      f'--target={text!r} must be METRIC=VALUE with a finite value, such as '
      'participating/test/personalized/accuracy=0.5, or with a percentage of '
      'what each run ends with, above 0 and up to 100, such as ...=95%'
    )
  return Target(metric, number, is_share)


def check(runs: Sequence[run_lib.Run], target: Target) -> None:
  """Raises DataError if no run has the metric of a target.

  Args:
    runs: At least one.
    target: The target.
  """
  if all(run.series(target.metric) is None for run in runs):
    raise errors.DataError(
      f'--target={target.metric}=...: no run has a round in which it is finite '
      'for all clients; take a column of '
      f'{runs[0].workdir / "metrics.csv"}'
    )


def spent_until(run: run_lib.Run, target: Target) -> dict[str, float]:
  """Returns rounds and communication until a run reached a target.

  Those of the run itself, without what a run spent that it continues.

  Interpolated linearly between the first evaluation that reaches the target and
  the one before.

  Returns:
    `ROUNDS`, `UPLINK` and `TOTAL`; NaN if the run did not reach it or did not
    count its communication, or if the target is a share of a final value that
    is not finite or below 0. Empty if it has no such metric, or in no round for
    all clients: a mean that leaves out some never reaches the target
    (`summaries.is_partial`).
  """
  scores = run.series(target.metric)
  if scores is None:
    return {}
  falls = summaries.is_error(target.metric)
  value = target.value
  if target.is_share:
    last = scores.values[-1] if scores.diverged is None else np.nan
    last = last if last >= 0 else np.nan
    value = last / value if falls else last * value
  spent = {
    ROUNDS: run_lib.Series(scores.rounds, scores.rounds - run.first_round),
    UPLINK: run.sent('uplink'),
    TOTAL: run.sent(),
  }
  sign = -1 if falls else 1
  reached = np.flatnonzero(sign * scores.values >= sign * value)
  if not reached.size:
    return dict.fromkeys(spent, np.nan)
  return {
    name: np.nan if one is None else _at(one, scores, reached[0], value)
    for name, one in spent.items()
  }


def _at(spent, scores, first, value):
  so_far = np.interp(scores.rounds, spent.rounds, spent.values)
  if not first:
    return float(so_far[0])
  before, after = scores.values[first - 1 : first + 1]
  share = (value - before) / (after - before)
  return float(so_far[first - 1] + share * (so_far[first] - so_far[first - 1]))
