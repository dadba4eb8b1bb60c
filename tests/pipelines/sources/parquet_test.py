import errno

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pipelines.examples import cleaning
from pipelines.sources import base, registry
from tests.testing import raw_sources
from tff_algos.core import errors


def _source(folder, **more):
  return registry.create('parquet', raw_sources.write_parquet(folder) | more, 0)


def test_files_and_row_groups_in_order(tmp_path):
  source = _source(tmp_path)
  (block,) = source.blocks()
  examples = list(source.read(block))
  np.testing.assert_array_equal(
    np.stack([e.x for e in examples]),
    [[i, i / 8] for i in range(8)],
  )
  assert [e.y for e in examples] == [0, 1, 1, 0] * 2
  assert [e.client for e in examples] == ['ann', 'bob'] * 4


@pytest.mark.parametrize(('start', 'stop'), [(0, 1), (2, 5), (3, 8), (7, 8)])
def test_any_run_of_rows(tmp_path, start, stop):
  source = _source(tmp_path)
  examples = source.read(base.Block('train', start, stop))
  assert [e.x[0] for e in examples] == list(range(start, stop))


def test_test_file_and_regression(tmp_path):
  source = _source(
    tmp_path,
    path=str(tmp_path / 'part-0.parquet'),
    test_path=str(tmp_path / 'part-1.parquet'),
    label_column='b',
    feature_columns=('a',),
    classes=None,
  )
  examples = raw_sources.read(source)
  assert [e.is_test for e in examples] == [False] * 4 + [True] * 4
  assert examples[6].y == 6 / 8
  assert [*source.checksums()] == ['part-0.parquet', 'test/part-1.parquet']


def test_missing_values_are_problems(tmp_path):
  source = _source(tmp_path, path=str(tmp_path / 'null.parquet'))
  columns = {'a': [1, None], 'b': [1.0, 2.0], 'y': [1, 0], 'who': ['a', 'b']}
  parquet.write_table(pyarrow.table(columns), tmp_path / 'null.parquet')
  (block,) = source.blocks()
  good, bad = source.read(block)
  assert good.problem is None
  assert bad.problem == ('not a finite number', 'a', 'None')


def test_missing_column_is_named(tmp_path):
  source = _source(tmp_path, label_column='age')
  with pytest.raises(errors.DataError, match="no column 'age'.* a, b, y, who"):
    source.blocks()


@pytest.mark.parametrize(
  'content', [b'', b'PAR1', b'not a table, but long enough for one']
)
def test_file_that_is_no_parquet(tmp_path, content):
  source = _source(tmp_path)
  (tmp_path / 'part-1.parquet').write_bytes(content)
  with pytest.raises(errors.DataError, match='part-1.* no sound Parquet file'):
    source.blocks()


def test_disk_that_fails(tmp_path, monkeypatch):
  source = _source(tmp_path)

  def fail(self, *args, **options):
    raise OSError(errno.ESTALE, 'Stale file handle')

  monkeypatch.setattr(parquet.ParquetFile, 'read_row_group', fail)
  with pytest.raises(OSError, match='Stale file handle'):
    list(source.read(source.blocks()[0]))


def test_text_that_is_not_utf8(tmp_path):
  source = _source(tmp_path, path=str(tmp_path / 'bytes.parquet'))
  names = pyarrow.array([b'\xff\xfe'], pyarrow.binary())
  # What a careless writer of another language leaves.
  names = pyarrow.Array.from_buffers(pyarrow.string(), 1, names.buffers())
  columns = {'a': [1], 'b': [1], 'y': [1], 'who': names}
  parquet.write_table(pyarrow.table(columns), tmp_path / 'bytes.parquet')
  with pytest.raises(errors.DataError, match='no sound Parquet file'):
    list(source.read(source.blocks()[0]))


def test_time_after_the_year_9999(tmp_path):
  """Milliseconds that were taken for seconds."""
  source = _source(
    tmp_path, path=str(tmp_path / 'late.parquet'), time_column='when'
  )
  when = pyarrow.array([9 * 10**12], pyarrow.timestamp('s'))
  columns = {'a': [1], 'b': [1], 'y': [1], 'who': ['ann'], 'when': when}
  parquet.write_table(pyarrow.table(columns), tmp_path / 'late.parquet')
  with pytest.raises(errors.DataError, match='date value out of range'):
    list(source.read(source.blocks()[0]))


def test_time_of_an_unknown_zone(tmp_path):
  """As Windows names it."""
  source = _source(
    tmp_path, path=str(tmp_path / 'zone.parquet'), time_column='when'
  )
  kind = pyarrow.timestamp('s', 'W. Europe Standard Time')
  columns = {'a': [1], 'b': [1], 'y': [1], 'who': ['ann']}
  columns['when'] = pyarrow.array([10**9], kind)
  parquet.write_table(pyarrow.table(columns), tmp_path / 'zone.parquet')
  with pytest.raises(
    errors.DataError, match=r"zone\.parquet .* zone: 'W\. Europe .* in UTC"
  ):
    list(source.read(source.blocks()[0]))


def test_rows_are_located_in_their_file(tmp_path):
  source = _source(tmp_path)
  found = [source.locate('train', i) for i in range(8)]
  assert [one.file for one in found] == ['part-0.parquet'] * 4 + [
    'part-1.parquet'
  ] * 4
  assert [one.line for one in found] == [1, 2, 3, 4] * 2
  assert found[5].row == {'a': 5, 'b': 5 / 8, 'y': 1, 'who': 'bob'}


def test_names_are_spelled_alike_in_columns_of_any_type(tmp_path):
  """Of a client, class and category that files store by different types."""
  columns = [
    pyarrow.array([7, 8, None], pyarrow.int64()),
    pyarrow.array([7.0, 8.0, float('nan')], pyarrow.float64()),
    pyarrow.array([b'7', b'8 ', b''], pyarrow.binary()),
    pyarrow.array(['7', ' 8', ' '], pyarrow.string()),
  ]
  for i, names in enumerate(columns):
    parquet.write_table(
      pyarrow.table({'who': names, 'y': names, 'city': names}),
      tmp_path / f'{i}.parquet',
    )
  source = _source(
    tmp_path,
    path=str(tmp_path / '?.parquet'),
    feature_columns=(),
    features=({'name': 'city', 'type': 'category'},),
    classes=('7', '8'),
    group_column='who',
  )
  (block,) = source.blocks()
  found = [(e.client, e.group, e.y, e.x['city']) for e in source.read(block)]
  expected = [('7', '7', 0, '7'), ('8', '8', 1, '8'), (None, None, None, '')]
  assert found == expected * 4


def test_bytes_of_no_text_are_a_dead_letter(tmp_path):
  columns = {'a': [1], 'b': [1.0], 'y': [1], 'who': [b'\xff']}
  parquet.write_table(pyarrow.table(columns), tmp_path / 'bytes.parquet')
  source = _source(tmp_path, path=str(tmp_path / 'bytes.parquet'))
  (block,) = source.blocks()
  _, (letter,) = cleaning.clean(block, source.read(block), source.features())
  assert letter.reason == 'the client id is not Unicode text'
