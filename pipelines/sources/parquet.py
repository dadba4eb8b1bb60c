"""Source of tables in Parquet files, read by row group."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow
from pyarrow import parquet

from pipelines.sources import base, cells, files, table
from tff_algos.core import errors


@dataclasses.dataclass(frozen=True)
class Options(table.Options):
  """Options of Parquet tables.

  Labels, clients, groups and categories of any type are texts: class 3 of a
  column of integers or floats is `'3'`, and bytes are UTF-8.
  """


class RowGroup(NamedTuple):
  """A row group of a file.

  Attributes:
    path: Path of the file.
    index: Index of the row group in the file.
    num_rows: Number of rows.
  """

  path: pathlib.Path
  index: int
  num_rows: int


class Parquet(table.Table):
  """Rows of Parquet files."""

  def _locate_row(self, part: str, row: int) -> base.Location:
    groups = self._groups(part)
    block = base.Block(part, row, row + 1)
    (run,) = base.runs([group.num_rows for group in groups], block)
    path = groups[run.index].path
    before = sum(g.num_rows for g in groups[: run.index] if g.path == path)
    (found,) = self._rows(block)
    return base.Location(
      path.name,
      before + run.start + 1,
      {name: cells.to_json(cell) for name, cell in found.items()},
    )

  def _num_rows(self, part: str) -> int:
    return sum(group.num_rows for group in self._groups(part))

  def _rows(self, block: base.Block) -> Iterator[Mapping[str, Any]]:
    groups = self._groups(block.part)
    for run in base.runs([group.num_rows for group in groups], block):
      path = groups[run.index].path
      rows = _read_group(path, groups[run.index].index, self._options.columns())
      with errors_of(path):
        yield from rows.slice(run.start, run.stop - run.start).to_pylist()

  def _groups(self, part: str) -> list[RowGroup]:
    columns = self._options.columns()
    return [
      group
      for path in self._paths(part)
      for group in _list_groups(path, columns)
    ]


@contextlib.contextmanager
def errors_of(path: pathlib.Path) -> Generator[None]:
  """Converts errors of pyarrow on a file to DataError, except a disk's."""
  try:
    yield
  except KeyError as error:  # Of pytz or zoneinfo.
    raise errors.DataError(
      f'{path} has times of an unknown zone: {error}. Write them in UTC, or '
      "with a zone such as 'Europe/Berlin'."
    ) from None
  except (
    *(pyarrow.ArrowException, OSError, ValueError),
    OverflowError,  # A time that Python has not.
  ) as error:
    if errors.is_of_disk(error):
      raise
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    raise errors.DataError(
      f'{path} is no sound Parquet file: {reason}. Fetch or make it again.'
    ) from None


@files.cached(256)
def _list_groups(
  path: pathlib.Path, columns: tuple[str, ...]
) -> tuple[RowGroup, ...]:
  """Returns the row groups of a file; checks its columns."""
  with errors_of(path), parquet.ParquetFile(path) as file:
    names = file.schema_arrow.names
    sizes = [
      file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)
    ]
  table.check_columns(path, names, columns)
  return tuple(RowGroup(path, i, size) for i, size in enumerate(sizes))


@files.cached(2)
def _read_group(
  path: pathlib.Path, index: int, columns: tuple[str, ...]
) -> pyarrow.Table:
  """Returns the columns of a row group."""
  with (
    errors_of(path),
    parquet.ParquetFile(path, page_checksum_verification=True) as file,
  ):
    return file.read_row_group(index, columns=list(columns))
