import dataclasses
import tracemalloc

import numpy as np
import pytest

from pipelines.sources import base, cells, table
from tff_algos.core import errors
from tff_algos.features import spec


class _Rows(table.Table):
  """A table whose rows are given."""

  ROWS = (
    {'a': 1, 'b': 2.5, 'y': 1, 'who': 7},
    {'a': True, 'b': '3', 'y': '1 ', 'who': None},
    {'a': None, 'b': 1, 'y': 1, 'who': ''},
    {'a': [1], 'b': 1, 'y': 1, 'who': 'ann'},
    {'a': 1, 'b': 1, 'y': None, 'who': 'ann'},
    {'a': 1, 'b': 1, 'y': 'maybe', 'who': 'ann'},
  )

  def _num_rows(self, part):
    return len(self.ROWS)

  def _rows(self, block):
    yield from self.ROWS[block.start : block.stop]


def _options(**more):
  return table.Options(
    **{
      'path': 'x/y',
      'label_column': 'y',
      'feature_columns': ('b', 'a'),
      'client_column': 'who',
      **more,
    }
  )


def test_columns_are_named_once():
  assert _options(client_column='a').columns() == ('y', 'b', 'a')


def test_cells_of_any_type():
  source = _Rows(_options(classes=('0', '1')), 0)
  (block,) = source.blocks()
  first, second, *bad = source.read(block)
  np.testing.assert_array_equal(first.x, [2.5, 1])
  assert (first.y, first.client, first.is_test) == (1, '7', False)
  np.testing.assert_array_equal(second.x, [3, 1])
  assert (second.y, second.client) == (1, None)
  assert [e.problem for e in bad] == [
    ('not a finite number', 'a', 'None'),
    ('not a finite number', 'a', '[1]'),
    None,
    ('the label is none of the classes', 'y', "'maybe'"),
  ]


def test_regression():
  source = _Rows(_options(), 0)
  examples = list(source.read(base.Block('test', 0, 6)))
  assert (examples[0].y, examples[0].is_test) == (1.0, True)
  assert examples[5].problem == (
    'the label is not a number; set classes for a classification',
    'y',
    "'maybe'",
  )
  assert source.features().task == 'regression'


@pytest.mark.parametrize(
  ('more', 'text'),
  [
    ({'path': ''}, 'must name a file'),
    ({'feature_columns': ()}, 'either feature_columns'),
    ({'feature_columns': ('a', 'a')}, 'name of its own, got a, a'),
    ({'feature_columns': ('a', 'y')}, "label_column 'y' is a feature, too"),
    (
      {
        'feature_columns': (),
        'features': (spec.Feature('a', 'tokens', 'ids', length=4),),
      },
      "feature 'a' has the type 'tokens', which is for sources of arrays",
    ),
    ({'classes': ('a',)}, 'different labels, at least two'),
    ({'classes': ('a', 'b', 'a')}, 'different labels, at least two'),
  ],
)
def test_bad_options(more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _options(**more)


@pytest.mark.parametrize(
  ('feature', 'stored'),
  [
    (
      spec.Feature('a', 'image', shape=(4, 5, 3)),
      ('uint8', (4, 5, 3), 1 / 255),
    ),
    (spec.Feature('a', 'text', 'ids', length=6), ('int32', (6,), 1.0)),
    (spec.Feature('a'), ('float32', (0,), 1.0)),  # Its width is fitted.
  ],
)
def test_views_know_what_is_stored(feature, stored):
  options = {'feature_columns': (), 'features': (feature,)}
  found = _Rows(_options(classes=('0', '1'), **options), 0).features()
  assert (found.x_dtype, found.x_shape, found.x_scale) == stored


def _windows(rows, **more):
  """Returns the source of given rows in windows of two."""
  options = {
    'feature_columns': (),
    'features': (spec.Feature('v', missing='mean'),),
    'time_column': 't',
    'window_length': 2,
    **more,
  }

  class Given(_Rows):
    ROWS = tuple(
      dict(zip(('who', 't', 'v', 'y'), row, strict=True)) for row in rows
    )

    def _locate_row(self, part, row):
      return base.Location('file', row)

  return Given(_options(**options), 0)


def test_windows_of_each_client_in_the_order_of_time():
  rows = [
    ('b', 2, 20, 0),
    ('a', 5, 15, 1),
    ('b', 1, '', 2),
    ('a', 4, 14, 3),
    ('b', 9, 29, 4),
  ]
  source = _windows(rows, max_gap=5.0)
  (block,) = source.blocks()
  first, second = source.read(block)
  assert (first.client, first.x, first.y, first.time) == (
    *('a', {'v': [14, 15]}, 1, 5),
  )
  # The last row follows after more than max_gap.
  np.testing.assert_array_equal(second.x['v'], [np.nan, 20])
  assert (second.client, second.y, second.problem) == ('b', 0, None)
  assert source.facts() == {
    'num_windows': {'train': 2},
    'num_rows_in_no_window': {'train': 1},
  }
  (feature,) = source.feature_spec().features
  assert feature.length == 2
  assert source.locate('train', 1) == ('file', 0, None)


def test_malformed_rows_of_windows_are_named():
  rows = [
    ('a', 0, 1, 0),
    ('a', 1, 'x', 0),
    ('a', 2, 3, 0),
    ('a', 'soon', 4, 0),
    ('', 4, 5, 0),
  ]
  source = _windows(rows)
  (block,) = source.blocks()
  assert [
    (e.problem, source.locate('train', i).line)
    for i, e in enumerate(source.read(block))
  ] == [
    (('not a number', 'v', "'x'"), 1),
    (('not a number', 'v', "'x'"), 1),
    (('not a number, date or time', 't', "'soon'"), 3),
    (('the client or the time is missing, which windows need', None, None), 4),
  ]


@pytest.mark.parametrize(
  ('cell', 'options', 'reason'),
  [
    ('NA', {}, "missing; allow it by missing='mean' or 'indicator'"),
    ('inf', {}, 'not a finite float32 number'),
    (
      -1,
      {'encoding': 'log', 'missing': 'mean'},
      'negative, which has no logarithm',
    ),
  ],
)
def test_rows_of_windows_that_cannot_be_encoded_are_named(
  cell, options, reason
):
  rows = [('a', t, v, 0) for t, v in enumerate([1, cell, 3, 4])]
  source = _windows(rows, features=(spec.Feature('v', **options),))
  (block,) = source.blocks()
  examples = list(source.read(block))
  assert [one.problem and one.problem.reason for one in examples] == [
    *(reason, reason, None)
  ]
  assert [source.locate('train', i).line for i in range(2)] == [1, 1]
  problem = examples[0].problem
  assert (problem.column, problem.value) == ('v', repr(source._number(cell)))


def test_missing_numbers_are_missing_everywhere():
  class Given(_Rows):
    ROWS = tuple(
      {'a': a, 'b': 1, 'y': y, 'who': 'ann'}
      for a, y in ((1, 'NA'), ('NA', 2), ('n/a', 3), (4, 'NaN'), (5, '?'))
    )

  nullable = cells.Column('a', 'integer', nullable=True, minimum=1.0)
  options = {
    'feature_columns': (),
    'features': (spec.Feature('a', missing='mean'),),
  }
  source = Given(_options(schema=(nullable,), **options), 0)
  (block,) = source.blocks()
  examples = list(source.read(block))
  assert [one.y for one in examples] == [None, 2, 3, None, None]
  assert [one.problem and one.problem.reason for one in examples] == [
    *(None, None, 'not a finite number', None, None)
  ]
  needed = dataclasses.replace(nullable, nullable=False)
  source = Given(_options(schema=(needed,), **options), 0)
  assert list(source.read(block))[1].problem == ('empty', 'a', None)
  # Of classes it may be one.
  source = Given(_options(classes=('NA', '2', '3'), **options), 0)
  assert [one.y for one in source.read(block)][:2] == [0, 1]


def test_a_missing_client_or_group_is_none():
  class Given(_Rows):
    ROWS = tuple(
      {'a': 1, 'b': 1, 'y': 2, 'who': who, 'night': night}
      for who, night in (('1', 'x'), ('NA', b' nan'), (' ', None))
    )

  source = Given(_options(group_column='night'), 0)
  (block,) = source.blocks()
  found = [(one.client, one.group) for one in source.read(block)]
  assert found == [('1', 'x'), (None, None), (None, None)]
  named = Given(_options(group_column='night', na_values=()), 0)
  assert [one.client for one in named.read(block)] == ['1', 'NA', None]


def test_windows_of_one_row_need_a_client():
  rows = [('a', 1, 7, 0), ('', 2, 7, 0), ('NA', 3, 7, 0)]
  source = _windows(rows, window_length=1)
  (block,) = source.blocks()
  problems = [example.problem for example in source.read(block)]
  assert problems[0] is None
  for problem in problems[1:]:
    assert 'the client or the time is missing' in problem.reason


def test_features_may_repeat_the_length_of_windows():
  features = (spec.Feature('v', length=2),)
  source = _windows([('a', 1, 7, 0), ('a', 2, 8, 0)], features=features)
  (block,) = source.blocks()
  (example,) = source.read(block)
  assert example.problem is None and example.x == {'v': [7, 8]}


def test_windows_do_not_depend_on_the_blocks(monkeypatch):
  """Of three clients by turns; rows far apart are read apart."""
  rows = [('abc'[i % 3], i, i * 1.5, i) for i in range(60)]
  source = _windows(rows, window_length=3, window_stride=2)
  (block,) = source.blocks()
  whole = [*source.read(block)]
  assert len(whole) == 27
  assert whole[0].x == {'v': [0, 4.5, 9]}
  monkeypatch.setattr(table, '_ROWS_BETWEEN', 1)
  parts = [
    example
    for start in range(0, 27, 4)
    for example in source.read(base.Block('train', start, min(start + 4, 27)))
  ]
  assert parts == whole


@pytest.mark.parametrize(
  ('more', 'text'),
  [
    ({'window_length': None, 'max_gap': 1.0}, 'need a window_length'),
    ({'window_length': 0}, 'window_length must be'),
    ({'window_stride': 0}, 'window_stride must be'),
    ({'max_gap': -1.0}, 'max_gap must be'),
    ({'time_column': ''}, 'window_length=2 needs time_column'),
    ({'client_column': ''}, 'window_length=2 needs client_column'),
    ({'features': (spec.Feature('v', 'text'),)}, "'v' of type 'text'"),
    ({'features': (spec.Feature('v', length=3),)}, 'length 3'),
  ],
)
def test_bad_options_of_windows(more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _windows([], **more)


def test_cells_of_lists_and_bytes():
  class Given(_Rows):
    ROWS = (
      {'w': [1, None, 3], 'y': 1},
      {'w': '1 2 3', 'y': 1},
      {'w': [1, 'x', 3], 'y': 1},
    )

  source = Given(
    _options(
      feature_columns=(),
      client_column='',
      features=(spec.Feature('w', length=3, missing='mean'),),
    ),
    0,
  )
  first, *others = source.read(source.blocks()[0])
  np.testing.assert_array_equal(first.x['w'], [1, np.nan, 3])
  assert [e.problem[0] for e in others] == ['not a list of numbers'] * 2
  image = spec.Feature('w', 'image', shape=(4, 4, 1))
  options = _options(feature_columns=(), features=(image,))
  assert Given(options, 0)._raw_value(image, b'png') == b'png'
  assert Given(options, 0)._raw_value(image, 'png') is None


def test_windows_take_no_memory_for_a_long_client_id():
  """Such as a text in the wrong column: its rows alone are malformed."""
  rows = [('a' * 20_000, 0, 0, 0), *[('b', i, 0, 0) for i in range(1000)]]
  source = _windows(rows)
  tracemalloc.start()
  try:
    assert len(source.blocks()) == 1
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert peak < 10 * 2**20
