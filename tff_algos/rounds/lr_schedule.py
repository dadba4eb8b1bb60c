"""Learning-rate schedule: step decay after given rounds, for any algorithm.

The schedule belongs to the experiment, not to the algorithm: the algorithm's
options are derived for each period of constant rates, and differ in the rates
alone; `rounds.periods` runs the algorithms of the periods one after another.
"""

import bisect
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib

_RATE = 'learning_rate'
# Rates of served models, which belong to no round.
_NEVER = ('newcomer_learning_rate',)
# The server's rate, and the inner rate in Per-FedAvg's objective.
_UNLESS_NAMED = ('server', 'inner_learning_rate')


@dataclasses.dataclass(frozen=True)
class LrScheduleConfig:
  """Step decay of learning rates: rounds, factor and affected rates.

  Attributes:
    after_rounds: Rounds after each of which the rates are multiplied by
      `factor`, each >= 1 and greater than the one before; none for constant
      rates. Initialization rounds before an algorithm's own
      (`stages.clusters.initialization`) count.
    factor: Decay factor in (0, 1], say 0.1.
    rates: Dotted keys of the algorithm's options, such as
      `'local_training.optimizer.learning_rate'`. `()` for all client rates:
      every key that ends in `learning_rate`, except the server's,
      `inner_learning_rate` and `newcomer_learning_rate`; the last cannot be
      named either.
  """

  after_rounds: tuple[int, ...] = ()
  factor: float = 0.1
  rates: tuple[str, ...] = ()

  def __post_init__(self) -> None:
    minimum = 1
    for round_num in self.after_rounds:
      checks.check_int('after_rounds', round_num, minimum=minimum)
      minimum = round_num + 1
    checks.check_share('factor', self.factor)
    if len({*self.rates}) < len(self.rates):
      raise errors.ConfigError(
        f'lr_schedule.rates is {self.rates}; name each rate once'
      )

  def period(self, round_num: int) -> int:
    """Returns the number of decays before a round (rounds count from 1)."""
    return bisect.bisect_left(self.after_rounds, round_num)

  def identity(self) -> Mapping[str, object]:
    """Returns the config entries that affect training state."""
    if not self.after_rounds:
      return {}
    return {'lr_schedule': config_lib.to_dict(self)}

  def check_constant(self) -> None:
    """Raises ConfigError if rates decay: theorems assume constant rates."""
    if self.after_rounds:
      raise errors.ConfigError(
        'the theorem assumes constant learning rates, but '
        f'config.lr_schedule.after_rounds is {self.after_rounds}; leave '
        'it empty'
      )

  def lower(self, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the options of each period; the first has the given options.

    Args:
      options: Options of an algorithm, plain and nested, with all defaults.

    Raises:
      ConfigError: If one of `rates` is not a rate of the algorithm, or if decay
        is configured and the algorithm has no client rate.
    """
    rates = [path for path in _rates(options) if path[-1] not in _NEVER]
    allowed = {'.'.join(path): path for path in rates}
    for key in self.rates:
      checks.check_one_of('lr_schedule.rates', key, allowed)
    falling = [allowed[key] for key in self.rates] or [
      path
      for path in rates
      if not any(part.startswith(_UNLESS_NAMED) for part in path)
    ]
    if self.after_rounds and not falling:
      raise errors.ConfigError(
        'lr_schedule.after_rounds is given, but the algorithm has no learning '
        f'rate of clients; name some in lr_schedule.rates, of '
        f'{", ".join(allowed) or "none"}'
      )
    periods = [dict(options)]
    for period in range(1, len(self.after_rounds) + 1):
      lowered = periods[0]
      for path in falling:
        lowered = _multiplied(lowered, path, self.factor**period)
      periods.append(lowered)
    return periods


def _rates(
  options: Mapping[str, Any], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
  """Yields the paths of all learning rates."""
  for key, value in options.items():
    path = (*prefix, key)
    if key == 'optimizer' and options.get('solver') == 'exact':
      continue  # It takes no steps.
    if isinstance(value, Mapping):
      yield from _rates(value, path)
    elif key.endswith(_RATE):
      yield path


def _multiplied(
  options: Mapping[str, Any], path: Sequence[str], factor: float
) -> dict[str, Any]:
  """Returns a copy of the options with one number multiplied by a factor."""
  key, *rest = path
  value = options[key]
  changed = _multiplied(value, rest, factor) if rest else factor * value
  return {**options, key: changed}
