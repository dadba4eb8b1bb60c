"""Totals against NumPy."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import pytest

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


def _examples(schema, n):
  rng = np.random.default_rng(0)
  x = rng.normal(0.7, size=(n, *schema.x_shape))
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


def _combine(parts, schema):
  """Adds the totals of some parts as they are written to files."""
  written = [
    json.dumps(totals.measure(part, schema).to_lists()) for part in parts
  ]
  return functools.reduce(
    totals.add, (totals.Totals.from_lists(json.loads(one)) for one in written)
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
  found = _described(_combine(parts, schema), schema)
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


def test_no_examples():
  schema = _schema('regression')
  found = _described(_combine([_examples(schema, 0)] * 2, schema), schema)
  assert found['num_examples'] == 0
  assert found['x'] is None and found['y'] is None
  assert 'features' not in found
