"""How much a run sends until a score is reached."""

from typing import NamedTuple

import numpy as np

from tff_algos.core import errors
from tff_algos.reports import measures
from tff_algos.reports import run as run_lib

UPLINK = 'cost/uplink_floats_to_target'
TOTAL = 'cost/total_floats_to_target'


class Target(NamedTuple):
  """A score to reach.

  Attributes:
    metric: Column of `metrics.csv`.
    value: Of it; errors and losses are to fall to it, all else to rise.
  """

  metric: str
  value: float

  @property
  def measures(self) -> tuple[measures.Measure, ...]:
    """Returns what it adds to tables and pictures."""
    goal = f'{self.metric} = {self.value:g}'
    return (
      measures.Measure(UPLINK, f'sent up until {goal}', 'floats'),
      measures.Measure(TOTAL, f'sent both ways until {goal}', 'floats'),
    )


def parse(text: str) -> Target:
  """Returns the target of `METRIC=VALUE`.

  Raises:
    ConfigError: If it is written otherwise.
  """
  metric, _, value = text.rpartition('=')
  try:
    number = float(value)
  except ValueError:
    number = np.nan
  if not metric or not np.isfinite(number):
    raise errors.ConfigError(
      f'--target={text!r} must be METRIC=VALUE with a finite value, such as '
      'participating/test/personalized/accuracy=0.5'
    )
  return Target(metric, number)


def sent_until(run: run_lib.Run, target: Target) -> dict[str, float]:
  """Returns the numbers sent until a run reached a target.

  Between the evaluation before and the first one that reaches it, numbers and
  score are taken to run straight.

  Returns:
    `UPLINK` and `TOTAL`; NaN if the run did not reach it or sent nothing that
    was counted. Empty if it has no such metric.
  """
  scores = run.series(target.metric)
  if scores is None:
    return {}
  sent = {UPLINK: measures.sent(run, ('cost/uplink_floats',))}
  sent[TOTAL] = measures.sent(run)
  sign = -1 if target.metric.endswith(('mse', 'loss')) else 1
  reached = np.flatnonzero(sign * scores.values >= sign * target.value)
  if not reached.size:
    return dict.fromkeys(sent, np.nan)
  first = reached[0]
  return {
    name: np.nan if one is None else _at(one, scores, first, target.value)
    for name, one in sent.items()
  }


def _at(sent, scores, first, value):
  costs = np.interp(scores.rounds, sent.rounds, sent.values)
  if not first:
    return float(costs[0])
  before, after = scores.values[first - 1 : first + 1]
  share = (value - before) / (after - before)
  return float(costs[first - 1] + share * (costs[first] - costs[first - 1]))
