"""CSV tables with a header."""

import csv


def read(path) -> list[dict[str, str]]:
  with open(path, newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def read_rounds(path) -> list[dict[str, str]]:
  """Returns the rows of a `metrics.csv` without the wall time."""
  return [
    {name: value for name, value in row.items() if name != 'seconds'}
    for row in read(path)
  ]


def write(path, rows) -> None:
  """Writes the columns of all rows; who lacks one has an empty cell there."""
  rows = list(rows)
  columns = dict.fromkeys(name for row in rows for name in row)
  with open(path, 'w', newline='', encoding='utf-8') as file:
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
