"""Selection of the best round by a metric, and early stopping."""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from tff_algos.core import checks, errors
from tff_algos.evaluation import summaries

MODES = ('auto', 'max', 'min')


@dataclasses.dataclass(frozen=True)
class SelectionConfig:
  """Options of the best round and of early stopping.

  Attributes:
    metric: A metric of the evaluation in metrics.csv, such as
      `held_out/all/cluster_0/accuracy`; empty for the personalized models'
      score on the validation examples.
    mode: Whether the largest (`'max'`) or the smallest (`'min'`) value is the
      best; `'auto'`: the smallest of a loss or error, or of what falls as runs
      converge (`summaries.is_error`), else the largest.
    patience: Evaluations without improvement after which training stops; 0 for
      never.
    min_improvement: Difference above which a value counts as an improvement,
      >= 0.
  """

  metric: str = ''
  mode: str = 'auto'
  patience: int = 0
  min_improvement: float = 0.0

  def __post_init__(self):
    checks.check_one_of('mode', self.mode, MODES)
    checks.check_int('patience', self.patience, minimum=0)
    checks.check_at_least('min_improvement', self.min_improvement, 0)


class Progress(NamedTuple):
  """The best round so far.

  Attributes:
    best_round: The round; -1 if no round has the metric.
    best_value: The metric of that round; NaN without one.
    num_since: Evaluations since then.
    rule: `rule_of` its choice; empty without one.
  """

  best_round: int = -1
  best_value: float = math.nan
  num_since: int = 0
  rule: str = ''

  def is_over(self, config: SelectionConfig) -> bool:
    """Returns whether the patience is exhausted."""
    return 0 < config.patience <= self.num_since


def is_smallest(metric: str, config: SelectionConfig) -> bool:
  """Returns whether the smallest value of a metric is the best."""
  return config.mode == 'min' or (
    config.mode == 'auto' and summaries.is_error(metric)
  )


def rule_of(config: SelectionConfig, default_metric: str) -> str:
  """Returns direction and metric, such as `'largest a/accuracy'`."""
  name = config.metric or default_metric
  return f'{"smallest" if is_smallest(name, config) else "largest"} {name}'


def update(
  progress: Progress,
  config: SelectionConfig,
  round_num: int,
  metrics: Mapping[str, float],
  default_metric: str,
) -> Progress:
  """Returns the progress after an evaluated round.

  A round whose metric is NaN, or a mean that leaves out clients as not finite,
  is no improvement; without any value so far it does not count.

  Args:
    progress: Before the round.
    config: Metric, direction and patience.
    round_num: The round.
    metrics: Of the evaluation.
    default_metric: The metric if the config names none.

  Raises:
    ConfigError: If the evaluation has no such metric.
  """
  name = config.metric or default_metric
  if config.metric and name not in metrics:
    raise errors.ConfigError(
      f'config.training.selection.metric is {name!r}, which the evaluation of '
      f'round {round_num} does not have; it has {", ".join(sorted(metrics))}'
    )
  value = summaries.whole(metrics, name)
  if math.isnan(value):
    has_best = progress.best_round >= 0
    return progress._replace(num_since=progress.num_since + has_best)
  sign = -1 if is_smallest(name, config) else 1
  gain = sign * (value - progress.best_value)
  if progress.best_round < 0 or gain > config.min_improvement:
    return Progress(round_num, value, rule=rule_of(config, default_metric))
  return progress._replace(num_since=progress.num_since + 1)
