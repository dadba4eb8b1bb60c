import numpy as np
import pytest

from pipelines.sources import csv, registry
from tests.testing import raw_data, raw_sources
from tff_algos.core import errors


def _source(folder, **more):
  options = {
    'path': str(folder / 'table.csv'),
    'label_column': 'y',
    'feature_columns': ('b', 'a'),
    **more,
  }
  return registry.create('csv', options, 0)


def test_classes(tmp_path):
  raw_data.write_csv(tmp_path, 3)
  source = _source(tmp_path, classes=('no', 'yes'), client_column='who')
  examples = raw_sources.read(source)
  np.testing.assert_allclose(
    [e.x for e in examples], [[0, 0], [1 / 7, 1], [2 / 7, 2]], rtol=1e-6
  )
  assert [e.y for e in examples] == [0, 1, 0]
  assert [e.client for e in examples] == ['person_0', 'person_1', 'person_2']
  features = source.features()
  assert features.x_shape == (2,)
  assert (features.task, features.num_classes) == ('classification', 2)


def test_regression_without_header_and_with_a_test_file(tmp_path):
  (tmp_path / 'table.csv').write_text('1; 2.5; 3\n')
  (tmp_path / 'test.csv').write_text('4; 5; 6\n')
  source = _source(
    tmp_path,
    test_path=str(tmp_path / 'test.csv'),
    column_names=('a', 'b', 'y'),
    delimiter=';',
  )
  first, second = raw_sources.read(source)
  np.testing.assert_array_equal(first.x, [2.5, 1])
  assert (first.y, first.is_test) == (3.0, False)
  assert (second.y, second.is_test) == (6.0, True)
  assert source.features().task == 'regression'


@pytest.mark.parametrize(
  ('row', 'problem'),
  [
    ('?,2,no,ann', "column 'a': not a finite number, got '?'"),
    (',2,no,ann', "column 'a': not a finite number, got ''"),
    ('1,2,no', 'the row has too few cells'),
    ('1,2,no,ann,3', 'the row has too many cells'),
    (
      '1,2,maybe,ann',
      "column 'y': the label is none of the classes, got 'maybe'",
    ),
  ],
)
def test_odd_row_is_a_problem_not_a_crash(tmp_path, row, problem):
  raw_data.write_csv(tmp_path, 1, (row,))
  source = _source(tmp_path, classes=('no', 'yes'))
  good, bad = raw_sources.read(source)
  assert good.problem is None
  assert str(bad.problem) == problem


def test_missing_column_is_named(tmp_path):
  raw_data.write_csv(tmp_path)
  with pytest.raises(errors.DataError, match="no column 'age'.*a, b, y, who"):
    _source(tmp_path, feature_columns=('a', 'age')).blocks()


def test_empty_file(tmp_path):
  (tmp_path / 'table.csv').write_text('')
  with pytest.raises(errors.DataError, match='columns are: none'):
    _source(tmp_path).blocks()


def test_file_that_is_no_text(tmp_path):
  (tmp_path / 'table.csv').write_bytes(b'\xff\xfe\x00')
  with pytest.raises(errors.DataError, match='not UTF-8'):
    _source(tmp_path).blocks()


@pytest.mark.parametrize(
  ('more', 'text'),
  [
    ({'feature_columns': ()}, 'either feature_columns'),
    ({'classes': ('one',)}, 'different labels, at least two'),
    ({'delimiter': ';;'}, 'one character'),
  ],
)
def test_bad_options(tmp_path, more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _source(tmp_path, **more)


def test_recipe_has_the_names_of_files_alone(tmp_path):
  recipe = _source(tmp_path, test_path='/far/away/test.csv').recipe()
  assert recipe['train_file'] == 'table.csv'
  assert recipe['test_file'] == 'test.csv'
  assert str(tmp_path) not in str(recipe)


def test_field_that_never_ends(tmp_path):
  raw_data.write_csv(tmp_path, 3, ('"' + 'a' * (1 << 24 | 1),))
  with pytest.raises(errors.DataError, match='line 5 of .* no CSV.*limit'):
    _source(tmp_path).blocks()


def test_cell_that_is_a_document(tmp_path):
  raw_data.write_csv(tmp_path, 3, ('1,1,yes,"' + 'a' * 200_000 + '"',))
  examples = raw_sources.read(_source(tmp_path, client_column='who'))
  assert [len(e.client) for e in examples[2:]] == [len('person_2'), 200_000]


@pytest.mark.parametrize('more', ['', '4,5,no,"bob"\n'])
def test_quotation_mark_that_is_not_closed(tmp_path, more):
  """It is named by its line, and does not hide the rows after it."""
  (tmp_path / 'table.csv').write_text(
    f'a,b,y,who\n1,2,no,ann\n2,3,yes,"bob\n3,4,no,cid\n{more}'
  )
  with pytest.raises(errors.DataError, match='line 3 of .* no CSV.*Close'):
    _source(tmp_path).blocks()


def test_a_block_reads_its_own_files_alone(tmp_path, monkeypatch):
  """Of more files than are kept, each twice: to count it, and its rows."""
  for i in range(40):
    (tmp_path / f'{i:02d}.csv').write_text('a,b,y\n1,2,3\n')
  source = _source(tmp_path, path=str(tmp_path / '*.csv'))
  read, reads = csv.files.read_text, []
  monkeypatch.setattr(
    csv.files, 'read_text', lambda path: reads.append(path) or read(path)
  )
  assert len(raw_sources.read(source)) == 40
  assert len(reads) == 80
  source.locate('train', 39)
  source.locate('train', 0)
  assert len(reads) == 81


def test_rows_are_located_by_their_last_line(tmp_path):
  (tmp_path / 'table.csv').write_text(
    'a,b,y,who\n1,2,no,"ann\nlee"\n\n3,4,no,bob,more\n'
  )
  source = _source(tmp_path)
  first, second = (source.locate('train', i) for i in range(2))
  assert (first.file, first.line) == ('table.csv', 3)
  assert first.row == {'a': '1', 'b': '2', 'y': 'no', 'who': 'ann\nlee'}
  assert second.line == 5
  assert second.row == {
    'a': '3',
    'b': '4',
    'y': 'no',
    'who': 'bob',
    '': ['more'],
  }


def test_groups_and_times(tmp_path):
  (tmp_path / 'table.csv').write_text(
    'a,b,y,walk,when\n1,2,3,w1,1970-01-02\n1,2,3, ,7.5\n1,2,3,w1,soon\n'
    '1,2,3,w1,\n'
  )
  source = _source(tmp_path, group_column='walk', time_column='when')
  first, second, third, last = raw_sources.read(source)
  assert (first.group, first.time) == ('w1', 86400.0)
  # A split by time misses it, and nothing else.
  assert (last.time, last.problem) == (None, None)
  assert (second.group, second.time, second.problem) == (None, 7.5, None)
  assert third.problem == ('not a number, date or time', 'when', "'soon'")
  assert [e.time for e in raw_sources.read(_source(tmp_path))] == [None] * 4


def test_the_index_that_pandas_writes_is_no_label(tmp_path):
  (tmp_path / 'table.csv').write_text(',who,a,b\n0,ann,1,2\n1,bob,3,4\n')
  source = _source(tmp_path, label_column='', client_column='who')
  examples = raw_sources.read(source)
  assert [(e.y, e.problem) for e in examples] == [(None, None)] * 2


def test_schema_comes_before_other_problems(tmp_path):
  raw_data.write_csv(tmp_path, 2, ('1e30,2,0,ann',))
  schema = ({'name': 'a', 'maximum': 9.0}, {'name': 'who', 'type': 'text'})
  *_, bad = raw_sources.read(_source(tmp_path, schema=schema))
  assert bad.problem == ('above 9', 'a', "'1e30'")
  twice = ({'name': 'a'}, {'name': 'a'})
  with pytest.raises(errors.ConfigError, match='a column once, got a, a'):
    _source(tmp_path, schema=twice)


def test_a_pattern_names_several_files(tmp_path):
  """In the order of their names, a row in the file where it is."""
  (tmp_path / 'day_2.csv').write_text('a,b,y\n3,4,1\n5,6,2\n')
  (tmp_path / 'day_1.csv').write_text('b,a,y\n2,1,0\n')
  (tmp_path / 'day_3.csv').write_text('a,b,y\n')
  (tmp_path / 'other.csv').write_text('nothing\n')
  source = _source(tmp_path, path=str(tmp_path / 'day_*.csv'))
  examples = raw_sources.read(source)
  assert [example.x.tolist() for example in examples] == [
    *([2, 1], [4, 3], [6, 5])
  ]
  assert [example.y for example in examples] == [0, 1, 2]
  places = [source.locate('train', i) for i in range(3)]
  assert [(place.file, place.line) for place in places] == [
    *(('day_1.csv', 2), ('day_2.csv', 2), ('day_2.csv', 3))
  ]
  assert places[2].row == {'a': '5', 'b': '6', 'y': '2'}
  before = source.checksums()
  (tmp_path / 'day_4.csv').write_text('a,b,y\n7,8,3\n')
  assert source.checksums() != before


def test_a_pattern_without_a_file(tmp_path):
  with pytest.raises(errors.DataError, match=r"has no file 'day_\*\.csv'"):
    _source(tmp_path, path=str(tmp_path / 'day_*.csv')).blocks()


def test_a_file_is_checked_with_its_part(tmp_path):
  """A version's name has the rows that train and those of the test split."""
  for part in ('train', 'test'):
    (tmp_path / part).mkdir()
    raw_data.write_csv(tmp_path / part, 3)
  path, test_path = (str(tmp_path / part / '*') for part in ('train', 'test'))
  source = _source(tmp_path, path=path, test_path=test_path)
  before = source.checksums()
  assert [*before] == ['table.csv', 'test/table.csv']
  raw_data.write_csv(tmp_path / 'train', 4)
  after = source.checksums()
  assert before['table.csv'] == before['test/table.csv']
  assert before['table.csv'] != after['table.csv']
  assert before['test/table.csv'] == after['test/table.csv']
  (tmp_path / 'train' / 'table.csv').rename(tmp_path / 'test' / 'more.csv')
  (tmp_path / 'test' / 'table.csv').rename(tmp_path / 'train' / 'table.csv')
  assert [*source.checksums()] == ['table.csv', 'test/more.csv']


def test_a_file_that_trains_and_tests_is_named(tmp_path):
  raw_data.write_csv(tmp_path, 3)
  path, test_path = str(tmp_path / '*.csv'), str(tmp_path / 'table.csv')
  source = _source(tmp_path, path=path, test_path=test_path)
  with pytest.raises(errors.DataError, match=r'table\.csv is matched by path'):
    source.checksums()


def test_column_that_is_there_twice(tmp_path):
  (tmp_path / 'table.csv').write_text('a,b,y,a,c,c\n1,2,3,4,5,6\n')
  with pytest.raises(errors.DataError, match="has 2 column 'a'.*a, b, y, a, c"):
    _source(tmp_path).blocks()
  # Others may be.
  _source(tmp_path, feature_columns=('b',)).blocks()
