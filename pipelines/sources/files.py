"""Reading of raw files, plain or compressed."""

import csv
import fnmatch
import functools
import gzip
import lzma
import os
import pathlib
import zlib
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from tff_algos.core import errors

P = ParamSpec('P')
T = TypeVar('T')

# Of all CSV that a process reads. A cell may be a document, and by itself the
# module refuses more than 128 KiB.
csv.field_size_limit(1 << 24)

# Suffix of a compressed file -> its `open`.
OPENERS = {'.gz': gzip.open, '.xz': lzma.open}


def find(folder: str, name: str) -> pathlib.Path:
  """Returns the path of a file stored plain, as .gz or as .xz.

  Raises:
    DataError: If none of the three exists.
  """
  path = find_optional(folder, name)
  if path is None:
    _refuse_folder(pathlib.Path(folder) / name)
    raise errors.DataError(
      f'no raw data: none of {", ".join(_spellings(name))} is in {folder!r}. '
      "Download it there, or mend the source's folder."
    )
  return path


def find_optional(folder: str, name: str) -> pathlib.Path | None:
  """Returns the path of a file as `find` does, None if there is none."""
  paths = (pathlib.Path(folder) / one for one in _spellings(name))
  return next((path for path in paths if path.is_file()), None)


def match(folder: str, pattern: str) -> list[pathlib.Path]:
  """Returns the file of a name, or else those that match a pattern, sorted.

  Raises:
    DataError: If there is none, one is a folder, or one is there both plain and
      compressed.
    OSError: If the disk fails.
  """
  is_name = pathlib.Path(folder, pattern).is_file()  # Which may have brackets.
  names = [pattern] if is_name else match_names(folder, pattern)
  paths = [pathlib.Path(folder, name) for name in names]
  if not paths:
    raise errors.DataError(
      f'no raw data: {folder!r} has no file {pattern!r}. Put it there, or mend '
      "the source's folder."
    )
  plain: dict[pathlib.Path, pathlib.Path] = {}
  for path in paths:
    _refuse_folder(path)
    name = path.with_suffix('') if path.suffix in OPENERS else path
    other = plain.setdefault(name, path)
    if other != path:
      raise errors.DataError(
        f'{other} and {path} are one file, stored twice: its rows would be '
        f'taken twice. Remove one, or mend the pattern {pattern!r}'
      )
  return paths


def match_names(folder: str, pattern: str) -> list[str]:
  """Returns the names in a folder that match a pattern, sorted.

  A hidden one, such as macOS's `._day.csv`, needs a pattern with a dot first.

  Raises:
    OSError: If the disk fails: `glob` would return what it has found so far.
  """
  try:
    names = os.listdir(folder)
  except (FileNotFoundError, NotADirectoryError):
    return []
  return sorted(
    name
    for name in fnmatch.filter(names, pattern)
    if pattern.startswith('.') or not name.startswith('.')
  )


def version_of(path: pathlib.Path) -> tuple[int, ...]:
  """Returns numbers that change with each replacement or change of a file."""
  found = path.stat()
  return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def cached(
  max_size: int | None,
) -> Callable[
  [Callable[Concatenate[pathlib.Path, P], T]],
  Callable[Concatenate[pathlib.Path, P], T],
]:
  """Returns a decorator that caches a reader until its file is another.

  A copy may keep the time of its original, so that time alone does not tell.

  Args:
    max_size: Number of results that are kept; None for all.
  """

  def decorate(
    read: Callable[Concatenate[pathlib.Path, P], T],
  ) -> Callable[Concatenate[pathlib.Path, P], T]:
    @functools.lru_cache(max_size)
    def remembered(
      version: tuple[int, ...], path: pathlib.Path, *args: Any, **kwargs: Any
    ) -> T:
      del version
      return read(path, *args, **kwargs)

    @functools.wraps(read)
    def read_once(path: pathlib.Path, *args: P.args, **kwargs: P.kwargs) -> T:
      return remembered(version_of(path), path, *args, **kwargs)

    return read_once

  return decorate


def read_bytes(path: pathlib.Path) -> bytes:
  """Returns the content of a file, decompressed by its suffix.

  Raises:
    DataError: If it is missing or damaged.
    OSError: If the disk fails.
  """
  try:
    with OPENERS.get(path.suffix, open)(path, 'rb') as file:
      return file.read()
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
    if errors.is_of_disk(error):
      raise
    raise errors.DataError(
      f'{path} cannot be read: {error}. Is it damaged? Fetch it again.'
    ) from None


def read_text(path: pathlib.Path, encoding: str = 'utf-8') -> str:
  """Returns the text of a file, decompressed, with original line ends.

  A byte-order mark, with which Excel begins a CSV file, is no part of it.

  Raises:
    DataError: If it is missing or damaged, or has another encoding.
  """
  try:
    return read_bytes(path).decode(encoding).removeprefix('\ufeff')
  except UnicodeDecodeError as error:
    raise errors.DataError(
      f'{path} is not {encoding.upper()} text: {error}. Convert it, or name '
      'the right file.'
    ) from None


def csv_error(
  path: pathlib.Path, line: int, error: csv.Error
) -> errors.DataError:
  """Returns the error of a file whose row from a line on is no CSV."""
  return errors.DataError(
    f'line {line} of {path} begins a row that is no CSV: {error}. Close its '
    'quotation mark, or double those within a cell.'
  )


def _refuse_folder(path: pathlib.Path) -> None:
  """Raises DataError if a folder is named in place of a file."""
  if path.is_dir():
    raise errors.DataError(
      f'{path} is a folder, not a file; name its files, such as '
      f'{path}/*{path.suffix}'
    )


def _spellings(name: str) -> tuple[str, ...]:
  return (name, *(name + end for end in OPENERS))
