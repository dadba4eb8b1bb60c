"""Source of tables in CSV files."""

import csv
import dataclasses
import functools
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


class Rows(NamedTuple):
  """Rows of a file.

  Attributes:
    lines: The last line of each row, from 1.
    rows: Column -> cell; those of a row that is too long have the column None.
  """

  lines: list[int]
  rows: list[dict[str, Any]]


class Csv(table.Table):
  """Rows of CSV files, in UTF-8."""

  def _locate_row(self, part: str, row: int) -> base.Location:
    block = base.Block(part, row, row + 1)
    ((path, run),) = self._runs(block)
    lines, rows = self._read(path)
    return base.Location(path.name, lines[run.start], _by_name(rows[run.start]))

  def _num_rows(self, part: str) -> int:
    return sum(len(self._read(path).rows) for path in self._paths(part))

  def _rows(self, block: base.Block) -> Iterator[Mapping[str, Any]]:
    for path, run in self._runs(block):
      yield from self._read(path).rows[run.start : run.stop]

  def _parse(self, row: Mapping[str, Any]) -> base.RawExample:
    example = super()._parse(row)
    if None in row:
      problem = base.Problem('the row has too many cells')
      example = example._replace(problem=problem)
    return example

  def _runs(self, block: base.Block) -> Iterator[tuple[pathlib.Path, base.Run]]:
    """Yields the files of a block, and its rows in each."""
    paths = self._paths(block.part)
    sizes = [len(self._read(path).rows) for path in paths]
    for run in base.runs(sizes, block):
      yield paths[run.index], run

  def _read(self, path: pathlib.Path) -> Rows:
    return _read_rows(path, self._options, path.stat().st_mtime_ns)

  def _paths(self, part: str) -> Sequence[pathlib.Path]:
    path = self._path(part)
    if any(character in path.name for character in '*?['):
      return super()._paths(part)
    return [files.find(str(path.parent), path.name)]


@functools.lru_cache(maxsize=256)
def _read_rows(path: pathlib.Path, options: Options, mtime_ns: int) -> Rows:
  """Returns the rows of a file, cached by `mtime_ns`."""
  del mtime_ns
  reader = csv.DictReader(
    io.StringIO(files.read_text(path), newline=''),
    fieldnames=options.column_names,
    delimiter=options.delimiter,
    skipinitialspace=True,
  )
  try:
    columns = [*(reader.fieldnames or ())]
    for column in options.columns():
      if columns.count(column) != 1:
        raise errors.DataError(
          f'{path} has {columns.count(column) or "no"} column {column!r}; its '
          f'columns are: {", ".join(columns) or "none"}'
        )
    lines, rows = [], []
    for row in reader:
      lines.append(reader.line_num)
      rows.append(row)
    return Rows(lines, rows)
  except csv.Error as error:
    raise errors.DataError(
      f'line {reader.line_num} of {path} is no CSV: {error}'
    ) from None


def _by_name(row: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the cells of a row; those without a column have the column ''."""
  return {name or '': cell for name, cell in row.items()}
