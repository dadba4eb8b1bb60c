"""Ranges of a search: a JSON file of config keys and what they may be.

    {
      "algorithm.proximal_weight": {"low": 0.001, "high": 10, "log": true},
      "algorithm.num_clusters": {"low": 2, "high": 6},
      "algorithm.local_training.optimizer.name": ["sgd", "adam"]
    }

A range whose config entry is an integer has integers; a list has the choices.
"""

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import config_values

_KEYS = ('low', 'high', 'log')


class Interval(NamedTuple):
  """An interval of numbers, both ends included.

  Attributes:
    low: Smallest value, an int for an interval of integers.
    high: Largest value, likewise.
    log: Whether the logarithm is uniformly distributed at first.
  """

  low: float
  high: float
  log: bool = False

  @property
  def ends(self) -> tuple[float, ...]:
    """Returns the extreme values."""
    return self.low, self.high


class Choices(NamedTuple):
  """Values without an order.

  Attributes:
    ends: All of them, JSON-ready.
  """

  ends: tuple[Any, ...]


Range = Interval | Choices


def read(path: str, config: Mapping[str, Any]) -> dict[str, Range]:
  """Reads a file of ranges.

  Args:
    path: Path of the file.
    config: Nested values of the config.

  Returns:
    Dotted key of the config -> its range, in the order of the file.

  Raises:
    ConfigError: If there is no such file, it is no JSON object of ranges, a
      key is given twice, or the config has no such key.
  """
  try:
    text = pathlib.Path(path).read_text(encoding='utf-8')
    content = json.loads(text, object_pairs_hook=_without_repeats)
  except OSError as error:
    raise errors.ConfigError(
      f'--ranges={path} cannot be read: {error.strerror}'
    ) from None
  except (json.JSONDecodeError, UnicodeDecodeError) as error:
    raise errors.ConfigError(f'--ranges={path} is no JSON: {error}') from None
  if not isinstance(content, dict) or not content:
    raise errors.ConfigError(
      f'--ranges={path} must have an object of config keys, such as '
      '{"algorithm.num_clusters": {"low": 2, "high": 6}}'
    )
  return {key: _parse(key, spec, config) for key, spec in content.items()}


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  content = dict(pairs)
  if len(content) < len(pairs):
    keys = [key for key, _ in pairs]
    repeated = next(key for key in keys if keys.count(key) > 1)
    raise errors.ConfigError(
      f'--ranges: {repeated} is given twice; give each key once'
    )
  return content


def _parse(key: str, spec: Any, config: Mapping[str, Any]) -> Range:
  """Returns one range; `key` is checked."""
  if key in ('seed', 'dataset.seed'):
    raise errors.ConfigError(
      f'range of {key}: --num_seeds sets the seeds, over which a trial is '
      'averaged'
    )
  if key == 'training.num_rounds':
    raise errors.ConfigError(
      f'range of {key}: trials are compared round by round, so that all have '
      'one number of rounds; set it in the config'
    )
  current = config_values.value_of(config, key)
  if isinstance(current, Mapping):
    raise errors.ConfigError(
      f'range of {key}: config.{key} is a section; name one of its keys: '
      f'{", ".join(current)}'
    )
  if isinstance(spec, list):
    spelled = [json.dumps(choice) for choice in spec]
    if len(set(spelled)) < max(2, len(spec)):
      raise errors.ConfigError(
        f'range of {key} must have two or more different choices, got {spec}'
      )
    return Choices(tuple(spec))
  if not isinstance(spec, dict) or not {'low', 'high'} <= spec.keys():
    raise errors.ConfigError(
      f'range of {key} must be a list of choices, or an object with low, high '
      f'and perhaps log, got {json.dumps(spec)}'
    )
  for name in spec:
    if name not in _KEYS:
      raise errors.ConfigError(
        config_lib.unknown_key_message(f'range of {key}', name, _KEYS)
      )
  return _interval(key, Interval(**spec), current)


def _interval(key: str, given: Interval, current: Any) -> Interval:
  """Returns a checked interval, of integers if the config has one."""
  is_number = lambda value: (
    type(value) in (int, float) and abs(value) <= sys.float_info.max
  )
  if not (is_number(given.low) and is_number(given.high)):
    raise errors.ConfigError(
      f'range of {key}: low and high must be finite numbers, got {given.low!r} '
      f'and {given.high!r}'
    )
  if type(given.log) is not bool:
    raise errors.ConfigError(
      f'range of {key}: log must be true or false, got {given.log!r}'
    )
  if given.low >= given.high or (given.log and given.low <= 0):
    floor = ', above 0 for log' if given.log else ''
    raise errors.ConfigError(
      f'range of {key}: low must be below high{floor}, got {given.low} and '
      f'{given.high}'
    )
  if type(current) is not int:
    return given._replace(low=float(given.low), high=float(given.high))
  if {type(given.low), type(given.high)} != {int}:
    raise errors.ConfigError(
      f'range of {key}: low and high must be integers, as config.{key} is '
      f'{current}; got {given.low} and {given.high}'
    )
  return given
