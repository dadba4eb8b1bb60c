"""Totals against NumPy, in any order, bit for bit."""

import dataclasses
import itertools

import apache_beam as beam
import hypothesis
import numpy as np
import pytest
from apache_beam.testing import test_pipeline, util
from hypothesis import strategies

from pipelines.examples import totals
from tff_algos.data import schema as schema_lib


def _schema(task='classification', shape=(2, 3)):
  return schema_lib.Schema(
    x_dtype='float32',
    x_shape=shape,
    x_scale=1.0,
    x_offset=0.0,
    task=task,
    num_classes=4 if task == 'classification' else 0,
    source_names=('a', 'b'),
  )


def _examples(schema, n, seed=0, scale=1.0):
  rng = np.random.default_rng(seed)
  x = rng.normal(scale=scale, size=(n, *schema.x_shape)) + 0.7
  y = rng.integers(0, 4, n) if schema.num_classes else rng.normal(2, 3, n)
  return schema_lib.Examples(
    x.astype(np.float32),
    y.astype(schema.y_dtype),
    rng.integers(0, 2, n).astype(np.int32),
  )


@pytest.mark.parametrize('n', [0, 5])
def test_each_of_several_labels_counts(n):
  schema = dataclasses.replace(_schema(), y_shape=(3,))
  y = np.random.default_rng(1).integers(0, 4, (n, 3)).astype(np.int32)
  measured = totals.measure(_examples(_schema(), n)._replace(y=y), schema)
  assert measured.num_examples == n
  np.testing.assert_array_equal(
    measured.label_counts, [(y == label).sum() for label in range(4)]
  )


def _cut(examples, bounds):
  return [
    schema_lib.Examples(*(column[start:stop] for column in examples))
    for start, stop in itertools.pairwise(bounds)
  ]


def _combine(parts, schema, order):
  """Combines as an engine might: the totals of some parts, then of those."""
  exact = [totals.to_exact(totals.measure(part, schema)) for part in parts]
  return totals.add_all(
    totals.add_all(exact[i] for i in group) for group in order if group
  )


def _described(total, schema):
  return totals.describe(
    total, num_features=int(np.prod(schema.x_shape)), by_feature=True
  )


@pytest.mark.parametrize('task', ['classification', 'regression'])
def test_descriptions_equal_numpy(task):
  schema = _schema(task)
  examples = _examples(schema, 57)
  parts = _cut(examples, [0, 20, 20, 57])
  found = _described(_combine(parts, schema, [[2, 0], [], [1]]), schema)
  x = examples.x.astype(np.float64).reshape(57, -1)
  y = examples.y.astype(np.float64)
  for part, values, axis in (
    (found['x'], x, None),
    (found['features'], x, 0),
    *([(found['y'], y, None)] if task == 'regression' else []),
  ):
    for name in ('mean', 'std', 'min', 'max'):
      np.testing.assert_allclose(
        part[name], getattr(np, name)(values, axis=axis), rtol=1e-13
      )
  assert found['num_examples'] == 57
  assert found['source_counts'] == np.bincount(examples.source).tolist()
  if task == 'classification':
    assert found['label_counts'] == np.bincount(examples.y).tolist()
    assert 'y' not in found
  else:
    expected = np.cov(np.column_stack([x, y]).T, bias=True)[-1, :-1]
    np.testing.assert_allclose(
      found['features']['covariance_with_y'], expected, rtol=1e-12
    )


@hypothesis.settings(max_examples=30)
@hypothesis.given(strategies.permutations(range(6)), strategies.integers(0, 6))
def test_order_and_grouping_change_no_bit(order, cut):
  schema = _schema('regression')
  # Magnitudes from 1e-20 to 1e20: float sums would depend on the order.
  parts = [_examples(schema, 5, i, 10.0 ** (8 * i - 20)) for i in range(6)]
  expected = _described(_combine(parts, schema, [range(6)]), schema)
  found = _combine(parts, schema, [order[:cut], order[cut:]])
  assert _described(found, schema) == expected


def test_small_terms_beside_large_ones_are_not_lost():
  schema = _schema(shape=(1,))
  values = np.float32([1e30, 1e-30, -1e30])
  parts = [
    schema_lib.Examples(
      np.array([[v]]), np.zeros(1, np.int32), np.zeros(1, np.int32)
    )
    for v in values
  ]
  found = _described(_combine(parts, schema, [range(3)]), schema)
  assert found['x']['mean'] == float(values[1]) / 3


def test_no_examples():
  schema = _schema('regression')
  found = _described(
    _combine([_examples(schema, 0)] * 2, schema, [[0, 1]]), schema
  )
  assert found['num_examples'] == 0
  assert found['x'] is None and found['y'] is None
  assert 'features' not in found


def test_in_a_pipeline():
  schema = _schema()
  examples = _examples(schema, 30)
  keyed = [
    (i % 2, totals.to_exact(totals.measure(part, schema)))
    for i, part in enumerate(_cut(examples, [0, 5, 11, 30]))
  ]

  def check(found):
    counts = {key: total.num_examples for key, total in found}
    assert counts == {0: 24, 1: 6}

  with test_pipeline.TestPipeline() as pipeline:
    combined = (
      pipeline | beam.Create(keyed) | beam.CombinePerKey(totals.add_all)
    )
    util.assert_that(combined, check)
