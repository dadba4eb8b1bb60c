"""CSV files with numbers checked on access."""

import csv
import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np

from tff_algos.core import errors


@dataclasses.dataclass(frozen=True)
class Table:
  """Columns of text by name.

  Attributes:
    path: File of the table, for error texts.
    columns: Name -> one text per row.
  """

  path: pathlib.Path
  columns: Mapping[str, tuple[str, ...]]

  def __contains__(self, name: str) -> bool:
    """Returns whether there is such a column."""
    return name in self.columns

  def texts(self, name: str) -> tuple[str, ...]:
    """Returns the texts of a column.

    Raises:
      DataError: If there is no such column.
    """
    if name not in self.columns:
      raise errors.DataError(
        f'{self.path} has no column {name!r}; it has: '
        f'{", ".join(self.columns)}.'
      )
    return self.columns[name]

  def numbers(self, name: str) -> np.ndarray:
    """Returns a column as float64 `[num_rows]`, NaN where a cell is empty.

    Raises:
      DataError: If there is no such column or a cell holds no number.
    """
    values = []
    for row, text in enumerate(self.texts(name)):
      try:
        values.append(float(text) if text else np.nan)
      except ValueError:
        raise errors.DataError(
          f'{self.path}, line {row + 2}, column {name!r}: {text!r} is no '
          'number. Was the file changed by hand?'
        ) from None
    return np.array(values)

  def matrix(self, prefix: str) -> np.ndarray | None:
    """Returns the columns `<prefix>0`, `<prefix>1`, ... side by side.

    Args:
      prefix: Such as `'membership_'`.

    Returns:
      float64 `[num_rows, num_columns]`, or None if there is no such column.
    """
    columns = []
    while f'{prefix}{len(columns)}' in self:
      columns.append(self.numbers(f'{prefix}{len(columns)}'))
    return np.stack(columns, axis=1) if columns else None


def read(path: pathlib.Path) -> Table:
  """Reads a CSV file with a header line and at least one row.

  Raises:
    DataError: If it is empty or a line is longer or shorter than the header.
  """
  with path.open(newline='', encoding='utf-8') as file:
    header, *rows = list(csv.reader(file)) or [[]]
  if not rows:
    raise errors.DataError(
      f'{path} has no rows. Was the run ended before its first round?'
    )
  for number, row in enumerate(rows, start=2):
    if len(row) != len(header):
      raise errors.DataError(
        f'{path}, line {number} has {len(row)} cells, the header has '
        f'{len(header)}. Is the file still being written?'
      )
  return Table(path, dict(zip(header, zip(*rows, strict=True), strict=True)))
