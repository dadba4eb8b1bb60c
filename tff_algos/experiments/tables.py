"""Atomic writes of CSV files of a run, and tables as text."""

import csv
import numbers
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tff_algos.core import durable


def write_table(path: pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
  """Writes a CSV table; missing values of a row become empty cells.

  Missing folders are created. The rows are iterated over twice.
  """
  durable.make_folder(path.parent)
  columns = list(dict.fromkeys(name for row in rows for name in row))
  with durable.replacing(path, newline='', encoding='utf-8') as file:
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)


def _spell(value: Any) -> str:
  is_integer = isinstance(value, numbers.Integral)
  return str(value) if is_integer else f'{value:.3g}'


def table_text(
  rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> str:
  """Returns columns of numbers as text: a heading, then one line per row."""
  lines = [
    [_spell(row[name]) if name in row else '' for name in columns]
    for row in rows
  ]
  return '\n'.join(
    ''.join(
      cell.rjust(max(len(name), 9) + 2)
      for cell, name in zip(line, columns, strict=True)
    )
    for line in (columns, *lines)
  )
