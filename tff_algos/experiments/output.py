"""Writes a file whole, or not at all."""

import csv
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tff_algos.core import durable


def write_json(path: pathlib.Path, content: Any) -> None:
  """Writes JSON for people: indented, with a line break at the end."""
  with durable.replacing(path) as file:
    file.write(json.dumps(content, indent=2) + '\n')


def write_table(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
  """Writes a CSV table; a row may lack columns, its cells are empty then."""
  columns = list(dict.fromkeys(name for row in rows for name in row))
  with durable.replacing(path, newline='') as file:
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
