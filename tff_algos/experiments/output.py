"""Tables and JSON of a run: written whole or not at all, and as text."""

import csv
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tff_algos.core import durable


def write_json(path: pathlib.Path, content: Any) -> None:
  """Writes JSON for people: indented, with a line break at the end.

  Folders that are missing are made, as by `write_table`.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  with durable.replacing(path) as file:
    file.write(json.dumps(content, indent=2) + '\n')


def write_table(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
  """Writes a CSV table; a row may lack columns, its cells are empty then."""
  path.parent.mkdir(parents=True, exist_ok=True)
  columns = list(dict.fromkeys(name for row in rows for name in row))
  with durable.replacing(path, newline='') as file:
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)


def table_text(
  rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> str:
  """Returns some columns of numbers as text, a row a line, below a heading."""
  lines = [
    [f'{row[name]:.3g}' if name in row else '' for name in columns]
    for row in rows
  ]
  return '\n'.join(
    ''.join(
      cell.rjust(max(len(name), 9) + 2)
      for cell, name in zip(line, columns, strict=True)
    )
    for line in (columns, *lines)
  )
