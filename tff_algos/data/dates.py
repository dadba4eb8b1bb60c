"""Dates of dataset versions: `as_of/<date>` refers to a version.

The date is the scheduler's logical date, not the wall-clock date. It is not
part of a version: two dates with the same raw data share a version.
"""

import datetime
import pathlib

from tff_algos.core import errors
from tff_algos.data import layout


def parse(as_of: str) -> str:
  """Returns a date in the form of its record, which sorts by date.

  Args:
    as_of: ISO 8601, such as `'2026-11-20'`, `'2026-11-20T06:00:00+01:00'` or
      `'20261120T050000'`. A time without an offset is UTC; a date without a
      time is its midnight.

  Returns:
    `'2026-11-20'` for a midnight in UTC, else `'2026-11-20T050000Z'`.

  Raises:
    ConfigError: If it is no date, or finer than a second.
  """
  try:
    time = datetime.datetime.fromisoformat(as_of)
    if time.tzinfo is None:
      time = time.replace(tzinfo=datetime.UTC)
    time = time.astimezone(datetime.UTC)
  except (ValueError, OverflowError):
    raise errors.ConfigError(
      f'as_of must be a date such as 2026-11-20 or a time such as '
      f'2026-11-20T06:00:00+01:00, got {as_of!r}'
    ) from None
  if time.microsecond:
    raise errors.ConfigError(f'as_of must be whole seconds, got {as_of!r}')
  date = time.date().isoformat()  # %Y is not padded on Linux.
  if time.time() == datetime.time():
    return date
  return f'{date}T{time:%H%M%SZ}'


def is_date(name: str) -> bool:
  """Returns whether a name is a date in the form of its record."""
  try:
    return parse(name) == name
  except errors.ConfigError:
    return False


def recorded(dataset: pathlib.Path) -> list[str]:
  """Returns all recorded dates, oldest first; other files are ignored."""
  folder = dataset / layout.AS_OF
  if not folder.is_dir():
    return []
  return sorted(path.name for path in folder.iterdir() if is_date(path.name))


def find_recorded(dataset: pathlib.Path, as_of: str) -> str:
  """Returns the latest recorded date that is not after `as_of`.

  Raises:
    ConfigError: If `as_of` is no date.
    DataError: If no such date is recorded.
  """
  date, dates = parse(as_of), recorded(dataset)
  fitting = [each for each in dates if each <= date]
  if not fitting:
    known = f'the first is {dates[0]}' if dates else 'no date is recorded'
    raise errors.DataError(
      f'{dataset} has no version as of {date}: {known}. Run '
      f'binaries.preprocess with --as_of={date}, or ask for a later date.'
    )
  return fitting[-1]


def version_of(dataset: pathlib.Path, date: str) -> str:
  """Returns the version of a recorded date.

  Raises:
    DataError: If the record is damaged.
  """
  return layout.read_pointer(dataset / layout.AS_OF / date)
