"""A small table of numbers, categories and texts, with gaps."""

import pathlib
from typing import Any

from pipelines import options
from tests.testing import csv_files
from tff_algos.core import config as config_lib

FEATURES = (
  {'name': 'age', 'missing': 'indicator'},
  {'name': 'income', 'encoding': 'by_client'},
  {'name': 'color', 'type': 'category', 'size': 2},
  {'name': 'note', 'type': 'text', 'encoding': 'count', 'size': 3},
)
_COLORS = ('red', 'blau', 'red', 'grün', '', 'red')
_NOTES = ("It's good", 'no good', '', 'GOOD größe!', 'no no no', 'es')


def rows(num_rows: int = 60) -> list[dict[str, str]]:
  """Returns rows of 5 clients; every seventh age is missing."""
  return [
    {
      'who': f'person_{i % 5}',
      'age': '' if i % 7 == 3 else str(20 + i % 11),
      'income': str(1000 * (1 + i % 5) + i),
      'color': _COLORS[i % 6],
      'note': _NOTES[i % 6],
      'y': ('no', 'yes')[(i // 5) % 2],
    }
    for i in range(num_rows)
  ]


def write(folder: pathlib.Path, table: list[dict[str, str]]) -> None:
  """Writes `table.csv`."""
  csv_files.write(folder / 'table.csv', table)


def config(folder: pathlib.Path, **overrides: Any) -> options.DatasetConfig:
  """Returns a dataset of the table, divided by its clients."""
  return config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {
        'name': 'csv',
        'options': {
          'path': str(folder / 'table.csv'),
          'label_column': 'y',
          'client_column': 'who',
          'classes': ('no', 'yes'),
          'features': FEATURES,
        },
      },
      'partition': {'law': 'natural', 'num_unseen_clients': 1},
      'splits': {
        'split_by': 'client',
        'test_ratio': 0.25,
        'held_out_fraction': 0.1,
      },
    }
    | overrides,
  )
