"""Cells of tables: numbers, times, and the schema of a column."""

import dataclasses
import datetime
import math
from collections.abc import Iterable
from typing import Any

from pipelines.sources import base
from tff_algos.core import checks, errors

NUMBER = 'number'
INTEGER = 'integer'
TIME = 'time'
TEXT = 'text'


@dataclasses.dataclass(frozen=True)
class Column:
  """Schema of a column; a row with a cell that violates it is a dead letter.

  Attributes:
    name: Name of the column.
    type: `'number'`, `'integer'`, `'time'` (a number, or a date or time of ISO
      8601) or `'text'`.
    minimum: Least value of a number, inclusive; None for no limit.
    maximum: Greatest value of a number, inclusive; None for no limit.
    allowed: The only values allowed, spelled as in the file; None for any.
    nullable: Whether a cell may be empty.
  """

  name: str
  type: str = NUMBER
  minimum: float | None = None
  maximum: float | None = None
  allowed: tuple[str, ...] | None = None
  nullable: bool = False

  def __post_init__(self) -> None:
    checks.check_one_of('type', self.type, (NUMBER, INTEGER, TIME, TEXT))
    is_ranged = self.minimum is not None or self.maximum is not None
    if is_ranged and not self.is_number:
      raise errors.ConfigError(
        f'a column of type {self.type!r} takes no minimum and no maximum, got '
        f'{self.minimum!r} and {self.maximum!r} for {self.name!r}'
      )
    if not _least(self) <= _greatest(self):
      raise errors.ConfigError(
        f'minimum must be at most maximum, got {self.minimum!r} and '
        f'{self.maximum!r} for column {self.name!r}'
      )
    if self.allowed == ():
      raise errors.ConfigError(
        f'allowed must be at least one value, got none for {self.name!r}'
      )

  @property
  def is_number(self) -> bool:
    """Returns whether its cells are numbers."""
    return self.type in (NUMBER, INTEGER)

  def find_problem(self, cell: Any) -> base.Problem | None:
    """Returns the error of a cell of this column, or None if it is valid."""
    if is_empty(cell):
      return None if self.nullable else base.Problem('empty', self.name)
    if self.allowed is not None and spell(cell) not in self.allowed:
      return self._problem('not one of the allowed values', cell)
    if self.type == TIME and parse_time(cell) is None:
      return self._problem('not a number, date or time', cell)
    if self.is_number:
      return self._find_problem_of_number(cell)
    return None

  def _find_problem_of_number(self, cell: Any) -> base.Problem | None:
    number = parse_number(cell)
    if number is None or not math.isfinite(number):
      return self._problem('not a finite number', cell)
    if self.type == INTEGER and not number.is_integer():
      return self._problem('not an integer', cell)
    if number < _least(self):
      return self._problem(f'below {self.minimum:g}', cell)
    if number > _greatest(self):
      return self._problem(f'above {self.maximum:g}', cell)
    return None

  def _problem(self, reason: str, cell: Any) -> base.Problem:
    return base.Problem(reason, self.name, repr(cell))


def is_empty(cell: Any) -> bool:
  """Returns whether a cell is null, NaN, or text of blanks."""
  if isinstance(cell, float):
    return math.isnan(cell)
  return cell is None or (isinstance(cell, str) and not cell.strip())


def spell(cell: Any) -> str:
  """Returns the text of a client, group, class or category; '' if it is empty.

  Files may store one column by different types: pandas turns integers into
  floats as soon as one is missing. Bytes that are not UTF-8 become text that is
  not Unicode, which the checks of examples refuse.
  """
  if is_empty(cell):
    return ''
  if isinstance(cell, float) and cell.is_integer():
    return str(int(cell))
  if isinstance(cell, bytes):
    cell = cell.decode(errors='surrogateescape')
  return str(cell).strip()


def find_two_spellings(names: Iterable[str]) -> tuple[str, str] | None:
  """Returns an integer that is there as `7` and `7.0`; None without one."""
  known = dict.fromkeys(names)
  for name in known:
    whole = name.removesuffix('.0')
    if whole != name and whole.lstrip('-').isdecimal() and whole in known:
      return whole, name
  return None


def to_json(cell: Any) -> Any:
  """Returns a cell that JSON can express; others as text, bytes as a count."""
  if isinstance(cell, bytes):
    return f'<{len(cell)} bytes>'
  if isinstance(cell, float) and not math.isfinite(cell):
    return str(cell)
  is_plain = cell is None or isinstance(cell, (bool, int, float, str))
  return cell if is_plain else str(cell)


def parse_number(cell: Any) -> float | None:
  """Returns a cell as a number, None if it is not numeric."""
  if isinstance(cell, str) and '_' in cell:
    return None  # Python's 1_000 is an id or a code in data.
  try:
    return float(cell)
  except (TypeError, ValueError, OverflowError):
    return None


def parse_time(cell: Any) -> float | None:
  """Returns a cell as a number of seconds since 1970, or of its own unit.

  Numbers stay as they are. A time without an offset is UTC, and a date is its
  midnight. None if it is neither, or not finite.
  """
  number = parse_number(cell)
  if number is not None:
    return number if math.isfinite(number) else None
  try:
    time = datetime.datetime.fromisoformat(str(cell).strip())
  except ValueError:
    return None
  if time.tzinfo is None:
    time = time.replace(tzinfo=datetime.UTC)
  return time.timestamp()


def _least(column: Column) -> float:
  return -math.inf if column.minimum is None else column.minimum


def _greatest(column: Column) -> float:
  return math.inf if column.maximum is None else column.maximum
