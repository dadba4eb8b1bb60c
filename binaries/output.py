"""Writes a file whole, or not at all."""

import contextlib
import csv
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def write_json(path: pathlib.Path, content: Any) -> None:
  """Writes JSON for people: indented, with a line break at the end."""
  with _replacing(path) as temporary:
    temporary.write_text(json.dumps(content, indent=2) + '\n')


def write_table(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
  """Writes a CSV table; a row may lack columns, its cells are empty then."""
  columns = list(dict.fromkeys(name for row in rows for name in row))
  with _replacing(path) as temporary, open(temporary, 'w', newline='') as file:
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)


@contextlib.contextmanager
def _replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a temporary file that takes the place of `path` at the end."""
  temporary = path.with_name(f'{path.name}.writing')
  try:
    yield temporary
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)
