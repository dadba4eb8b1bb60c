import math

import numpy as np
import pytest
import tensorflow as tf

from pipelines.examples import raw_columns
from tff_algos.features import spec as spec_lib

_SPEC = spec_lib.FeatureSpec(
  (
    spec_lib.Feature('age', missing='mean'),
    spec_lib.Feature('income', encoding='log'),
    spec_lib.Feature('note', 'text'),
  )
)
_GOOD = {'age': 31.0, 'income': 5.0, 'note': 'ü'}


@pytest.mark.parametrize(
  ('values', 'expected'),
  [
    ({}, None),
    ({'age': math.nan}, None),
    ({'age': -5.0}, None),
    ({'age': math.inf}, ('not a finite float32 number', 'age', 'inf')),
    ({'age': 1e39}, ('not a finite float32 number', 'age', '1e+39')),
    (
      {'income': math.nan},
      ("missing; allow it by missing='mean' or 'indicator'", 'income', 'nan'),
    ),
    ({'income': -1.0}, ('negative, which has no logarithm', 'income', '-1.0')),
    ({'note': '\ud800'}, ('not Unicode text', 'note', "'\\ud800'")),
    ({'note': 'a\0'}, ('a text with a zero byte', 'note', "'a\\x00'")),
  ],
)
def test_problems(values, expected):
  assert raw_columns.find_problem({**_GOOD, **values}, _SPEC) == expected


def test_problems_of_windows():
  spec = spec_lib.FeatureSpec((spec_lib.Feature('a', length=2),))
  assert raw_columns.find_problem({'a': [1.0, 2.0]}, spec) is None
  found = raw_columns.find_problem({'a': [1.0]}, spec)
  assert found is not None and found.reason == 'the shape is (1,), not (2,)'


def test_problems_of_images():
  spec = spec_lib.FeatureSpec(
    (spec_lib.Feature('i', 'image', shape=(2, 2, 1)),)
  )
  sound = tf.io.encode_png(np.zeros((3, 3, 1), np.uint8)).numpy()
  assert raw_columns.find_problem({'i': sound}, spec) is None
  for damaged in (b'', b'text', sound[:30]):
    found = raw_columns.find_problem({'i': damaged}, spec)
    assert found == (
      'not a PNG, JPEG or BMP image of at most 33,554,432 pixels, '
      '1,032 for each byte; a BMP file '
      'needs 24 or 32 bits a pixel, or a palette of 256 grays',
      'i',
      None,
    )


def test_stack_and_select():
  columns = raw_columns.stack([_GOOD, {**_GOOD, 'note': ''}], _SPEC)
  assert columns['age'].dtype == np.float32
  assert columns['note'].tolist() == ['ü', '']
  some = raw_columns.select(columns, np.array([False, True]))
  assert some['note'].tolist() == [''] and some['income'].tolist() == [5.0]
  empty = raw_columns.stack([], _SPEC)
  assert {len(values) for values in empty.values()} == {0}


def test_keys_are_of_content_and_columns_do_not_run_together():
  rows = [
    {'a': 'x', 'b': 'yz'},
    {'a': 'xy', 'b': 'z'},
    {'a': 'x', 'b': 'yz'},
  ]
  spec = spec_lib.FeatureSpec(
    tuple(spec_lib.Feature(name, 'text') for name in 'ab')
  )
  keys = raw_columns.keys(raw_columns.stack(rows, spec), 3)
  assert keys.shape == (3, 16)
  assert keys[0].tolist() == keys[2].tolist() != keys[1].tolist()
