import numpy as np
import pytest

from pipelines.sources import base, registry, table
from tff_algos.core import errors


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
      'folder': 'x',
      'train_file': 'y',
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
  assert examples[5].problem == ('the label is not a number', 'y', "'maybe'")
  assert source.features().task == 'regression'


@pytest.mark.parametrize(
  ('more', 'text'),
  [
    ({'train_file': ''}, 'must name a file'),
    ({'feature_columns': ()}, 'either feature_columns'),
    ({'classes': ('a',)}, '2'),
  ],
)
def test_bad_options(more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _options(**more)


def test_tables_are_registered():
  for name in ('csv', 'parquet'):
    options_class, source_class = registry.SOURCES[name]
    assert issubclass(options_class, table.Options)
    assert issubclass(source_class, table.Table)
