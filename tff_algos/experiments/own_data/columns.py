"""Columns of a raw table, as far as its first rows show what they are."""

import collections
import contextlib
import csv
import datetime
import itertools
import lzma
import math
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyarrow import parquet

from pipelines.sources import cells, files, table
from pipelines.sources import parquet as parquet_source
from tff_algos.core import errors

NUMBER = 'number'
TEXT = 'text'
TIME = 'time'
IMAGE = 'image'
WINDOW = 'window'
OTHER = 'other'

MAX_ROWS = 100_000
# Above it, a column has too many different values to count each.
MAX_VALUES = 10_000
# Least share of cells of one kind for the others to be errors.
_MOST = 0.95

_DELIMITERS = ',;\t|'
_IMAGES = (b'\x89PNG', b'\xff\xd8\xff', b'BM')


class Column(NamedTuple):
  """Content of a column in the rows that were looked at.

  Attributes:
    name: Name of the column.
    kind: `'number'`, `'text'`, `'time'`, `'image'` (bytes of a file),
      `'window'` (lists of numbers of one length) or `'other'`.
    num_rows: Number of rows.
    num_missing: Cells that are empty or, but in a column of texts, a spelling
      of a missing number.
    num_odd: Cells that are of another kind.
    values: Value, as text -> its number of rows; of at most `MAX_VALUES`
      values.
    is_whole: Whether all numbers are integers.
    minimum: Least number; NaN without any.
    maximum: Greatest number; NaN without any.
    mean_words: Mean number of words of a text.
    length: Length of the windows; 0 for other columns.
  """

  name: str
  kind: str
  num_rows: int
  num_missing: int
  num_odd: int
  values: Mapping[str, int]
  is_whole: bool
  minimum: float
  maximum: float
  mean_words: float
  length: int

  @property
  def num_present(self) -> int:
    """Returns the number of cells that are not missing."""
    return self.num_rows - self.num_missing

  def of_clients(self) -> 'Column':
    """Returns the column as the source reads clients, NA as missing."""
    named = {
      value: count
      for value, count in self.values.items()
      if value not in table.Options.na_values
    }
    unnamed = sum(self.values.values()) - sum(named.values())
    return self._replace(values=named, num_missing=self.num_missing + unnamed)

  @property
  def has_all_values(self) -> bool:
    """Returns whether `values` has every value."""
    return len(self.values) < MAX_VALUES

  @property
  def counts_rows(self) -> bool:
    """Returns whether the cells are consecutive whole numbers, each once."""
    return (
      self.is_whole
      and not self.num_odd
      and self.maximum - self.minimum + 1 == self.num_rows
      and max(self.values.values()) == 1
    )


class Table(NamedTuple):
  """The first rows of a table.

  Attributes:
    columns: The columns, in their order.
    num_rows: Number of rows that were looked at, at most `MAX_ROWS`.
    delimiter: Delimiter of a CSV file; '' for Parquet.
    has_header: Whether the first line has the names of the columns.
    is_first: Whether the table has further files.
  """

  columns: tuple[Column, ...]
  num_rows: int
  delimiter: str = ''
  has_header: bool = True
  is_first: bool = False

  @property
  def part(self) -> str:
    """Returns which rows were looked at, in words; '' for all of them."""
    rows = f'{self.num_rows:,} rows' + ' of the first file' * self.is_first
    if self.num_rows >= MAX_ROWS:
      return f'the first {rows}'
    return f'the {rows}' if self.is_first else ''


def read(path: pathlib.Path) -> Table:
  """Looks at the first rows of a CSV (plain, .gz or .xz) or Parquet file.

  Raises:
    DataError: If it is missing, empty, damaged or of another kind.
    OSError: If the disk fails.
  """
  if not path.exists():
    raise errors.DataError(
      f'no raw data: there is no file {str(path)!r}. Mend the path.'
    )
  if path.suffix == '.parquet':
    return _read_parquet(path)
  try:
    return _read_csv(path)
  except (
    *(OSError, EOFError, UnicodeDecodeError, csv.Error, lzma.LZMAError),
    zlib.error,
  ) as error:
    if errors.is_of_disk(error):
      raise
    raise errors.DataError(
      f'{path} is no CSV file in UTF-8 and no Parquet file: {error}. Convert '
      'it, or name the right file.'
    ) from None


def of_values(name: str, values: Sequence[Any]) -> Column:
  """Returns a column by all of its cells."""
  tally = _Tally()
  for value in values:
    tally.add(value)
  return tally.finish(name, len(values))


def is_number(cell: Any) -> bool:
  """Returns whether a cell is a finite number."""
  number = cells.parse_number(cell)
  return number is not None and math.isfinite(number)


def _read_parquet(path: pathlib.Path) -> Table:
  with contextlib.ExitStack() as stack:
    with parquet_source.errors_of(path):
      file = stack.enter_context(parquet.ParquetFile(path))
    return _tally(path, file.schema_arrow.names, _parquet_rows(path, file))


def _parquet_rows(
  path: pathlib.Path, file: parquet.ParquetFile
) -> Iterator[Iterable[Any]]:
  with parquet_source.errors_of(path):
    for batch in file.iter_batches(1000):
      for row in batch.to_pylist():
        yield row.values()


def _read_csv(path: pathlib.Path) -> Table:
  # Excel begins a file with a byte-order mark, which is no part of a name.
  with files.OPENERS.get(path.suffix, open)(
    path, 'rt', encoding='utf-8-sig', newline=''
  ) as file:
    start = file.read(1 << 16)
    delimiter = _find_delimiter(start)
    file.seek(0)
    reader = csv.reader(
      file, delimiter=delimiter, skipinitialspace=True, strict=True
    )
    first = next(reader, [])
    has_header = _is_header(first)
    names = first if has_header else [f'column_{i}' for i in range(len(first))]
    rows = reader if has_header else itertools.chain([first], reader)
    found = _tally(path, names, filter(None, rows))
  return found._replace(delimiter=delimiter, has_header=has_header)


def _find_delimiter(start: str) -> str:
  """Returns the delimiter that the first line has most often."""
  first = start.partition('\n')[0]
  return max(_DELIMITERS, key=first.count)


def _is_header(row: Sequence[str]) -> bool:
  """Returns whether a row has no numbers, but counted columns or years.

  One number alone counts nothing: it is a value, as a label or a year may be.
  """
  numbers = [cell for cell in row if is_number(cell)]
  if len(numbers) == 1:
    return False
  years = [n for n in numbers[:1] if n.isdecimal() and len(n) == 4]
  counts = (
    range(start, start + len(numbers)) for start in (0, 1, *map(int, years))
  )
  return any(numbers == list(map(str, count)) for count in counts)


def _tally(
  path: pathlib.Path, names: list[str], rows: Iterable[Iterable[Any]]
) -> Table:
  tallies = [_Tally() for _ in names]
  num_rows = 0
  for row in itertools.islice(rows, MAX_ROWS):
    num_rows += 1
    for tally, cell in zip(tallies, row, strict=False):
      tally.add(cell)
  if not num_rows:
    raise errors.DataError(f'{path} has no rows')
  return Table(
    tuple(
      tally.finish(name, num_rows)
      for name, tally in zip(names, tallies, strict=True)
    ),
    num_rows,
  )


class _Tally:
  """Counts of the cells of a column."""

  def __init__(self) -> None:
    self._kinds = collections.Counter[str]()
    self._values = collections.Counter[str]()
    self._no_numbers = collections.Counter[str]()
    self._lengths = set[int]()
    self._least, self._greatest = math.inf, -math.inf
    self._is_whole = True
    self._num_words = 0

  def add(self, cell: Any) -> None:
    """Adds a cell, or nothing if it is missing."""
    kind = self._kind(cell)
    if kind is None:
      return
    self._kinds[kind] += 1
    if kind == WINDOW:
      self._lengths.add(len(cell))
    elif kind == NUMBER:
      number = float(cell)
      self._least = min(self._least, number)
      self._greatest = max(self._greatest, number)
      self._is_whole = self._is_whole and number.is_integer()
    elif kind == TEXT:
      self._num_words += len(str(cell).split())
    if kind not in (IMAGE, WINDOW, OTHER):
      value = cells.spell(cell)
      if value in self._values or len(self._values) < MAX_VALUES:
        self._values[value] += 1

  def _kind(self, cell: Any) -> str | None:
    """Returns the kind of a cell; None if it is missing."""
    if isinstance(cell, bytes):
      return IMAGE if cell.startswith(_IMAGES) else OTHER
    if isinstance(cell, (list, dict)):
      return WINDOW if all(map(is_number, cell)) and cell else OTHER
    if cells.is_empty(cell):
      return None
    if str(cell).strip() in table.Options.na_values:
      self._no_numbers[str(cell).strip()] += isinstance(cell, str)
      return None
    if isinstance(cell, bool):
      return TEXT
    if isinstance(cell, (datetime.date, datetime.datetime)):
      return TIME
    if is_number(cell):
      return NUMBER
    # A column of texts has no times: looking for them takes long.
    if self._kinds[TEXT] > self._kinds[TIME]:
      return TEXT
    return TEXT if cells.parse_time(cell) is None else TIME

  def finish(self, name: str, num_rows: int) -> Column:
    """Returns the column."""
    total = self._kinds.total()
    kind, count = (self._kinds.most_common(1) or [(TEXT, 0)])[0]
    if count < _MOST * total:
      kind, count = TEXT, total
    if kind == TEXT:
      # Such as the class NA among others: the source has it as a text.
      self._values += self._no_numbers
      total += self._no_numbers.total()
      count += self._no_numbers.total()
    if kind == WINDOW and len(self._lengths) > 1:
      kind = OTHER
    return Column(
      name=name,
      kind=kind,
      num_rows=num_rows,
      num_missing=num_rows - total,
      num_odd=total - count,
      values=self._values,
      is_whole=self._is_whole and self._kinds[NUMBER] > 0,
      minimum=self._least if self._kinds[NUMBER] else math.nan,
      maximum=self._greatest if self._kinds[NUMBER] else math.nan,
      mean_words=self._num_words / max(self._kinds[TEXT], 1),
      length=max(self._lengths) if kind == WINDOW else 0,
    )
