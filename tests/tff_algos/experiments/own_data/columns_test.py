import datetime
import errno
import gzip
import math

import pyarrow
import pytest
from pyarrow import parquet

from tff_algos.core import errors
from tff_algos.experiments.own_data import columns


def _read(folder, text, name='t.csv'):
  path = folder / name
  path.write_bytes(
    gzip.compress(text.encode()) if '.gz' in name else text.encode()
  )
  return columns.read(path)


def _by_name(table):
  return {column.name: column for column in table.columns}


def test_kinds_of_the_columns_of_a_csv_file(tmp_path):
  table = _read(
    tmp_path,
    'n,i,city,when,note\n'
    '0.5,3,Rome,2026-11-01,it rained all day\n'
    'NA,1,Paris,2026-11-02T10:00,\n'
    '\n'
    '-2,2,Rome,2026-11-03,we saw a cat\n',
  )
  found = _by_name(table)
  assert table.num_rows == 3
  assert [(c.kind, c.num_missing) for c in table.columns] == [
    *(('number', 1), ('number', 0), ('text', 0), ('time', 0), ('text', 1))
  ]
  assert (found['n'].minimum, found['n'].maximum) == (-2, 0.5)
  assert [found[name].is_whole for name in ('n', 'i')] == [False, True]
  assert found['city'].values == {'Rome': 2, 'Paris': 1}
  assert found['note'].mean_words == 4
  assert math.isnan(found['city'].minimum)


@pytest.mark.parametrize('name', ['t.csv', 't.csv.gz'])
def test_byte_order_mark_is_no_part_of_a_name(tmp_path, name):
  with_mark = _read(tmp_path, '\ufeffcity,n\nRome,1\nOslo,2\n', name)
  assert with_mark == _read(tmp_path, 'city,n\nRome,1\nOslo,2\n', name)
  assert [column.name for column in with_mark.columns] == ['city', 'n']


def test_spelling_of_a_missing_number_is_a_text_among_texts(tmp_path):
  rows = [
    f'{place},{number},?'
    for place, number in zip(
      ('NA', 'EU', 'AS', ''), ('NA', '1', '2', '3'), strict=True
    )
  ]
  found = _by_name(_read(tmp_path, '\n'.join(['place,n,no', *rows])))
  assert found['place'].values == {'NA': 1, 'EU': 1, 'AS': 1}
  assert (found['place'].num_missing, found['place'].num_odd) == (1, 0)
  # As the name of a client it is none.
  clients = found['place'].of_clients()
  assert (clients.values, clients.num_missing) == ({'EU': 1, 'AS': 1}, 2)
  assert (found['n'].kind, found['n'].num_missing) == ('number', 1)
  assert found['no'].values == {'?': 4}


def test_few_odd_cells_do_not_change_the_kind(tmp_path):
  """One of 40 numbers is a word, and one of 4."""
  rows = [f'{i},{i % 4 or "no"}' for i in range(1, 41)]
  found = _by_name(_read(tmp_path, '\n'.join(['a,b', 'x,1', *rows])))
  assert (found['a'].kind, found['a'].num_odd) == ('number', 1)
  assert (found['b'].kind, found['b'].num_odd) == ('text', 0)


@pytest.mark.parametrize(
  ('first', 'has_header'),
  [
    ('age,city', True),
    ('0,1', True),
    ('1,2', True),
    ('0,1,label', True),
    ('label,2019,2020', True),
    ('label,2019,2021', False),
    ('5,1', False),
    ('0.5,Rome', False),
    ('u1,red,1', False),
    ('ann,Rome,2019', False),
    ('user,inf,outcome', True),
  ],
)
def test_header_line(tmp_path, first, has_header):
  table = _read(tmp_path, f'{first}\n{first}\n')
  assert table.has_header == has_header
  assert table.num_rows == 1 + (not has_header)
  if not has_header:
    assert table.columns[0].name == 'column_0'


@pytest.mark.parametrize('delimiter', [',', ';', '\t', '|'])
def test_delimiter_and_compression(tmp_path, delimiter):
  text = delimiter.join(('a', 'b')) + '\n' + delimiter.join(('1', 'x,y;z'))
  table = _read(tmp_path, text.replace(',y;z', ''), 't.csv.gz')
  assert table.delimiter == delimiter
  assert [c.kind for c in table.columns] == ['number', 'text']


def test_kinds_of_the_columns_of_a_parquet_file(tmp_path):
  path = tmp_path / 't.parquet'
  rows = {
    'window': [[1.0, 2.0], [3.0, 4.0]],
    'ragged': [[1.0], [3.0, 4.0]],
    'image': [b'\x89PNG..', b'\xff\xd8\xff..'],
    'bytes': [b'a', b'b'],
    'day': [datetime.date(2026, 11, 1), None],
    'flag': [True, False],
    'n': [1, None],
  }
  parquet.write_table(pyarrow.table(rows), path)
  table = columns.read(path)
  assert {c.name: c.kind for c in table.columns} == {
    'window': 'window',
    'ragged': 'other',
    'image': 'image',
    'bytes': 'other',
    'day': 'time',
    'flag': 'text',
    'n': 'number',
  }
  assert _by_name(table)['window'].length == 2


def test_at_most_so_many_rows_and_values(tmp_path, monkeypatch):
  monkeypatch.setattr(columns, 'MAX_ROWS', 50)
  monkeypatch.setattr(columns, 'MAX_VALUES', 20)
  table = _read(
    tmp_path, 'a,b\n' + '\n'.join(f'{i},{i % 3}' for i in range(99))
  )
  assert table.num_rows == 50
  first, second = table.columns
  assert (len(first.values), first.has_all_values) == (20, False)
  assert second.values == {'0': 17, '1': 17, '2': 16}


@pytest.mark.parametrize(
  ('name', 'content', 'words'),
  [
    ('none.csv', None, 'no raw data: there is no file'),
    ('none.parquet', None, 'no raw data: there is no file'),
    ('t.csv', b'', 'has no rows'),
    ('t.csv', b'a,b\n', 'has no rows'),
    ('t.csv', b'a\n\xff\xfe', 'no CSV file in UTF-8'),
    ('t.csv.gz', b'a,b', 'no CSV file in UTF-8'),
    ('t.parquet', b'PAR1', 'no sound Parquet file'),
  ],
)
def test_unreadable_file_is_one_clear_error(tmp_path, name, content, words):
  if content is not None:
    (tmp_path / name).write_bytes(content)
  with pytest.raises(errors.DataError, match=words):
    columns.read(tmp_path / name)


def test_file_that_may_not_be_read_is_no_damaged_one(tmp_path, monkeypatch):
  def fail(*_, **unused):
    raise PermissionError(errno.EACCES, 'Permission denied')

  monkeypatch.setattr(columns, 'open', fail, raising=False)
  with pytest.raises(PermissionError, match='Permission denied'):
    _read(tmp_path, 'a\n1\n')


def test_cell_that_is_a_document_and_quotes_that_do_not_end(tmp_path):
  (column,) = _read(tmp_path, 'note\n"' + 'a b' * 50_000 + '"\nb\n').columns
  assert column.num_rows == 2
  with pytest.raises(errors.DataError, match='no CSV file .* unexpected end'):
    _read(tmp_path, 'note\n"a\nb\n')


@pytest.mark.parametrize(
  ('seconds', 'zone', 'words'),
  [
    (9 * 10**12, None, 'date value out of range'),
    (10**9, 'W. Europe Standard Time', r"unknown zone: 'W\. Europe Standard"),
  ],
)
def test_time_that_python_has_not(tmp_path, seconds, zone, words):
  when = pyarrow.array([seconds], pyarrow.timestamp('s', zone))
  parquet.write_table(pyarrow.table({'when': when}), tmp_path / 't.parquet')
  with pytest.raises(errors.DataError, match=words):
    columns.read(tmp_path / 't.parquet')


def test_values_are_spelled_as_the_source_does(tmp_path):
  """Classes that are proposed are those that a build finds."""
  path = tmp_path / 't.parquet'
  parquet.write_table(pyarrow.table({'label': [1.0, 0.0, 1.0, None]}), path)
  (column,) = columns.read(path).columns
  assert column.values == {'1': 2, '0': 1}
