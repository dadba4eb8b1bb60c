"""Source of tables in CSV files."""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.sources import base, files, table
from tff_algos.core import errors


@dataclasses.dataclass(frozen=True)
class Options(table.Options):
  """Options of CSV tables; files are plain, .gz or .xz.

  Attributes:
    column_names: Names of all columns if the files have no header line.
    delimiter: Delimiter of the columns.
  """

  column_names: tuple[str, ...] | None = None
  delimiter: str = ','

  def __post_init__(self) -> None:
    super().__post_init__()
    if len(self.delimiter) != 1:
      raise errors.ConfigError(
        f'delimiter must be one character, got {self.delimiter!r}'
      )


class Format(NamedTuple):
  """What a CSV file is read by.

  Attributes:
    columns: Names of the columns that it must have once.
    column_names: Names of all columns if it has no header line.
    delimiter: Delimiter of the columns.
  """

  columns: tuple[str, ...]
  column_names: tuple[str, ...] | None = None
  delimiter: str = ','


class Rows(NamedTuple):
  """Rows of a file.

  Attributes:
    lines: The last line of each row, from 1.
    rows: Column -> cell; those of a row that is too long have the column None,
      and those that a row lacks are None.
  """

  lines: list[int]
  rows: list[dict[str, Any]]


class Csv(table.Table):
  """Rows of CSV files, in UTF-8."""

  def _locate_row(self, part: str, row: int) -> base.Location:
    block = base.Block(part, row, row + 1)
    ((path, run),) = self._runs(block)
    return locate(path, self._read(path), run.start)

  def _num_rows(self, part: str) -> int:
    return sum(self._count(path) for path in self._paths(part))

  def _rows(self, block: base.Block) -> Iterator[Mapping[str, Any]]:
    for path, run in self._runs(block):
      yield from self._read(path).rows[run.start : run.stop]

  def _parse(self, row: Mapping[str, Any]) -> base.RawExample:
    example = super()._parse(row)
    return example._replace(problem=find_problem(row) or example.problem)

  def _runs(self, block: base.Block) -> Iterator[tuple[pathlib.Path, base.Run]]:
    """Yields the files of a block, and its rows in each."""
    paths = self._paths(block.part)
    sizes = [self._count(path) for path in paths]
    for run in base.runs(sizes, block):
      yield paths[run.index], run

  def _count(self, path: pathlib.Path) -> int:
    return _count_rows(path, self._format())

  def _read(self, path: pathlib.Path) -> Rows:
    return read_rows(path, self._format())

  def _format(self) -> Format:
    options = self._options
    return Format(options.columns(), options.column_names, options.delimiter)

  def _paths(self, part: str) -> Sequence[pathlib.Path]:
    path = self._path(part)
    if any(character in path.name for character in '*?['):
      return super()._paths(part)
    return [files.find(str(path.parent), path.name)]


def find_problem(row: Mapping[str, Any]) -> base.Problem | None:
  """Returns the error of a row with too many or too few cells, or None."""
  if None in row:
    return base.Problem('the row has too many cells')
  if None in row.values():
    return base.Problem('the row has too few cells')
  return None


def locate(path: pathlib.Path, found: Rows, index: int) -> base.Location:
  """Returns file, line and cells of a row; cells without a column have ''."""
  row = {name or '': cell for name, cell in found.rows[index].items()}
  return base.Location(path.name, found.lines[index], row)


# Apart from the rows, so that a block reads none of the files before it.
@files.cached(None)
def _count_rows(path: pathlib.Path, form: Format) -> int:
  return len(read_rows(path, form).rows)


# A month of daily files: windows read a client's rows of all of them.
@files.cached(32)
def read_rows(path: pathlib.Path, form: Format) -> Rows:
  """Returns the rows of a CSV file.

  Raises:
    DataError: If it is no CSV, or a column is missing or there twice.
  """
  reader = csv.DictReader(
    io.StringIO(files.read_text(path), newline=''),
    fieldnames=form.column_names,
    delimiter=form.delimiter,
    skipinitialspace=True,
    strict=True,  # Else a stray quotation mark hides all rows after it.
  )
  lines, rows = [], []
  try:
    columns = [*(reader.fieldnames or ())]
    table.check_columns(path, columns, form.columns)
    for row in reader:
      lines.append(reader.line_num)
      rows.append(row)
    return Rows(lines, rows)
  except csv.Error as error:
    raise files.csv_error(path, reader.line_num + 1, error) from None
