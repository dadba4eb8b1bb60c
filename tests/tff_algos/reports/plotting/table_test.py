"""CSV tables: numbers are checked where they are asked for."""

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.reports.plotting import table


def _table(tmp_path, text):
  path = tmp_path / 'table.csv'
  path.write_text(text)
  return table.read(path)


def test_empty_cells_are_nan(tmp_path):
  found = _table(tmp_path, 'round,loss\n0,\n1,2.5\n')
  np.testing.assert_array_equal(found.numbers('loss'), [np.nan, 2.5])
  assert found.texts('round') == ('0', '1')
  assert 'loss' in found
  assert 'accuracy' not in found


def test_numbered_columns_become_a_matrix(tmp_path):
  found = _table(tmp_path, 'm_1,m_0,m_3\n2,1,9\n4,3,9\n')
  np.testing.assert_array_equal(found.matrix('m_'), [[1, 2], [3, 4]])
  assert found.matrix('n_') is None


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    ('', 'has no rows'),
    ('round,loss\n', 'has no rows'),
    ('round,loss\n1\n', 'line 2 has 1 cells, the header has 2'),
  ],
)
def test_damaged_files_are_refused(tmp_path, text, words):
  with pytest.raises(errors.DataError, match=words):
    _table(tmp_path, text)


def test_what_is_no_number_is_named(tmp_path):
  found = _table(tmp_path, 'round,loss\n1,2\n2,low\n')
  with pytest.raises(errors.DataError, match="line 3, column 'loss': 'low'"):
    found.numbers('loss')
  with pytest.raises(errors.DataError, match="no column 'mse'.*round, loss"):
    found.numbers('mse')
