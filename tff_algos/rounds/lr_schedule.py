"""Learning-rate schedule: step decay after given rounds, for any algorithm.

The schedule belongs to an experiment and not to an algorithm: the options of an
algorithm become those of several periods, which differ by their rates alone,
and `rounds.periods` runs the algorithms of these one after another.
"""

import bisect
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib

_RATE = 'learning_rate'
# Of the models that serve, which belong to no round.
_NEVER = ('newcomer_learning_rate',)
# A step of the server, and one that is part of what Per-FedAvg minimises.
_UNLESS_NAMED = ('server', 'inner_learning_rate')


@dataclasses.dataclass(frozen=True)
class LrScheduleConfig:
  """Step decay of learning rates: after which rounds, how far, and which.

  Attributes:
    after_rounds: Rounds after each of which the rates are multiplied by
      `factor`, each >= 1 and greater than the one before; none for constant
      rates. Rounds before those of an algorithm
      (`stages.clusters.initialization`) count.
    factor: In (0, 1], say 0.1.
    rates: Dotted keys of the algorithm's options, such as
      `'local_training.optimizer.learning_rate'`. None for all rates of clients:
      every key that ends in `learning_rate`, but those of the server and
      `inner_learning_rate`.
  """

  after_rounds: tuple[int, ...] = ()
  factor: float = 0.1
  rates: tuple[str, ...] = ()

  def __post_init__(self) -> None:
    minimum = 1
    for round_num in self.after_rounds:
      checks.check_int('after_rounds', round_num, minimum=minimum)
      minimum = round_num + 1
    checks.check_positive('factor', self.factor)
    checks.check_fraction('factor', self.factor)

  def period(self, round_num: int) -> int:
    """Returns how often rates have fallen before a round, which is from 1."""
    return bisect.bisect_left(self.after_rounds, round_num)

  def identity(self) -> Mapping[str, object]:
    """Returns the config entries that affect training state."""
    if not self.after_rounds:
      return {}
    return {'lr_schedule': config_lib.to_dict(self)}

  def check_constant(self, what: str) -> None:
    """Raises ConfigError if rates fall, for `what` holds for constant ones."""
    if self.after_rounds:
      raise errors.ConfigError(
        f'{what} speaks of constant learning rates, but '
        f'config.lr_schedule.after_rounds is {self.after_rounds}; leave '
        'it empty'
      )

  def lower(self, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the options of each period; those of the first are the same.

    Args:
      options: Of an algorithm, plain and nested, with all defaults.

    Raises:
      ConfigError: If one of `rates` is no rate of the algorithm's, or no rate
        falls though one should.
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
    if isinstance(value, Mapping):
      yield from _rates(value, path)
    elif key.endswith(_RATE):
      yield path


def _multiplied(
  options: Mapping[str, Any], path: Sequence[str], factor: float
) -> dict[str, Any]:
  """Returns a copy in which one number is multiplied."""
  key, *rest = path
  value = options[key]
  changed = _multiplied(value, rest, factor) if rest else factor * value
  return {**options, key: changed}
