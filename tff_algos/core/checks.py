"""Validation of user-supplied values; a failed check raises ConfigError.

Each check returns the value unchanged: nothing is clipped, rounded or repaired.
"""

import sys
from collections.abc import Collection
from typing import Any, NoReturn, TypeVar

from tff_algos.core import errors

T = TypeVar('T')


def _fail(name: str, value: Any, allowed: str) -> NoReturn:
  raise errors.ConfigError(f'{name} must be {allowed}, got {value!r}')


def check_int(
  name: str, value: int | None, *, minimum: int, maximum: int | None = None
) -> int:
  """Raises ConfigError unless `value` is an int in [minimum, maximum]."""
  allowed = f'an integer >= {minimum}'
  if maximum is not None:
    allowed = f'an integer from {minimum} to {maximum}'
  if not isinstance(value, int) or isinstance(value, bool):
    _fail(name, value, allowed)
  if value < minimum or (maximum is not None and value > maximum):
    _fail(name, value, allowed)
  return value


def check_given(name: str, value: T | None) -> T:
  """Raises ConfigError if `value` is None."""
  if value is None:
    _fail(name, value, 'given')
  return value


def check_positive(name: str, value: float) -> float:
  """Raises ConfigError unless `value` is a finite number > 0."""
  if not _is_number(value) or value <= 0:
    _fail(name, value, 'a finite number > 0')
  return value


def check_concentration(value: float) -> float:
  """Raises ConfigError unless a concentration is a number from 1e-6 to 1e6.

  Of a Dirichlet distribution: NumPy's draws were seen not to end with 1e-9, and
  to be zeros with 1e307.
  """
  if not _is_number(value) or not 1e-6 <= value <= 1e6:
    _fail('concentration', value, 'a number from 1e-6 to 1e6')
  return value


def check_timeout(name: str, value: float) -> float:
  """Raises ConfigError unless `value` is a number of seconds > 0, up to a day.

  Sockets overflow from some 300 years on.
  """
  if not _is_number(value) or not 0 < value <= 86_400:
    _fail(name, value, 'a number of seconds > 0 and <= 86400')
  return value


def check_at_least(name: str, value: float, minimum: float) -> float:
  """Raises ConfigError unless `value` is a finite number >= minimum."""
  if not _is_number(value) or value < minimum:
    _fail(name, value, f'a finite number >= {minimum:g}')
  return value


def check_fraction(name: str, value: float) -> float:
  """Raises ConfigError unless 0 <= value <= 1."""
  if not _is_number(value) or not 0 <= value <= 1:
    _fail(name, value, 'a number from 0 to 1')
  return value


def check_below_one(name: str, value: float) -> float:
  """Raises ConfigError unless 0 <= value < 1."""
  if not _is_number(value) or not 0 <= value < 1:
    _fail(name, value, 'a number >= 0 and < 1')
  return value


def check_share(name: str, value: float) -> float:
  """Raises ConfigError unless 0 < value <= 1."""
  if not _is_number(value) or not 0 < value <= 1:
    _fail(name, value, 'a number > 0 and <= 1')
  return value


def check_proper_share(name: str, value: float) -> float:
  """Raises ConfigError unless 0 < value < 1."""
  if not _is_number(value) or not 0 < value < 1:
    _fail(name, value, 'a number > 0 and < 1')
  return value


def check_one_of(name: str, value: T, allowed: Collection[T]) -> T:
  """Raises ConfigError unless `value` is one of `allowed`."""
  if value not in allowed:
    choices = ', '.join(repr(choice) for choice in allowed)
    _fail(name, value, f'one of {choices}')
  return value


def check_address(name: str, value: str) -> str:
  """Raises ConfigError unless `value` is `host:port`."""
  host, _, port = value.rpartition(':') if isinstance(value, str) else ('',) * 3
  if not (host and port.isdecimal() and 0 < int(port) < 65536):
    _fail(name, value, 'host:port, such as 10.0.0.7:8000')
  return value


def _is_number(value: Any) -> bool:
  return (
    isinstance(value, (int, float))
    and not isinstance(value, bool)
    # Also refuses NaN, infinity and integers too large for a float.
    and abs(value) <= sys.float_info.max
  )
