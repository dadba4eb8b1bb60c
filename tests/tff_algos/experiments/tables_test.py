import numpy as np
import pytest

from tests.testing import csv_files
from tff_algos.experiments import tables


def test_table_has_the_columns_of_all_rows(tmp_path):
  path = tmp_path / 'clients.csv'
  tables.write_table(path, [{'a': 1, 'b': 0.1}, {'c': 'x,y', 'a': 2}])
  assert csv_files.read(path) == [
    {'a': '1', 'b': '0.1', 'c': ''},
    {'a': '2', 'b': '', 'c': 'x,y'},
  ]


def test_failure_keeps_the_file_that_was_there(tmp_path):
  table = tmp_path / 'clients.csv'
  tables.write_table(table, [{'a': 5}])
  before = table.read_text()
  with pytest.raises(KeyboardInterrupt):
    tables.write_table(table, _InterruptedRows([{'a': 1}, {'a': 2}]))
  assert table.read_text() == before
  assert list(tmp_path.iterdir()) == [table]


class _InterruptedRows(list):
  """Ctrl-C falls into the second pass over the rows, when they are written."""

  num_passes = 0

  def __iter__(self):
    self.num_passes += 1
    if self.num_passes > 1:
      raise KeyboardInterrupt
    return super().__iter__()


def test_missing_folders_are_made(tmp_path):
  tables.write_table(tmp_path / 'evaluation' / 'a.csv', [{'a': 1}])
  assert (tmp_path / 'evaluation' / 'a.csv').is_file()


def test_table_as_text_leaves_absent_cells_empty():
  row = {'a_long_column': 1.23456, 'c': 12345.0, 'unprinted': 0}
  text = tables.table_text([row], ['a_long_column', 'b', 'c'])
  header, line = text.splitlines()
  assert header.split() == ['a_long_column', 'b', 'c']
  assert len(header) == len(line)
  assert line.split() == ['1.23', '1.23e+04']


def test_integers_are_printed_whole():
  text = tables.table_text(
    [{'round': np.int64(1024), 'n': 12345}], ['round', 'n']
  )
  assert text.splitlines()[1].split() == ['1024', '12345']
