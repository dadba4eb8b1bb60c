import numpy as np

from pipelines.examples import client_table
from pipelines.publishing import published
from tff_algos.data import schema as schema_lib

_CLIENTS = [
  published.Client('ann', 'participating', 0),
  published.Client('bob', 'participating', 1),
  published.Client('cai', 'unseen', 2),
]


def _schema(num_classes):
  return schema_lib.Schema(
    x_dtype='float32',
    x_shape=(2,),
    x_scale=1.0,
    x_offset=0.0,
    task='classification' if num_classes else 'regression',
    num_classes=num_classes,
    source_names=('a', 'b'),
  )


def _rows(num_classes, y, x=((1, 2), (3, 4), (5, 7))):
  schema = _schema(num_classes)
  table = client_table.ClientTable(schema, _CLIENTS)
  examples = schema_lib.Examples(
    np.float32(x), np.array(y, schema.y_dtype), np.int32([0, 1, 1])
  )
  # Bob's first, and in two pieces.
  for rows in ([0, 1], [], [2]):
    rows = np.array(rows, int)
    table.add(
      'train',
      np.array([1, 1, 2])[rows],
      schema_lib.Examples(*(column[rows] for column in examples)),
    )
  return table.to_arrow().to_pylist()


def test_counts_and_moments_of_each_client():
  ann, bob, cai = _rows(3, [2, 0, 2])
  assert (ann['client_id'], cai['group']) == ('ann', 'unseen')
  assert bob['train_source_counts'] == [1, 1]
  assert bob['train_label_counts'] == [1, 0, 1]
  assert bob['test_label_counts'] == [0, 0, 0]
  values = np.array([1, 2, 3, 4])
  assert bob['x_mean'] == values.mean()
  np.testing.assert_allclose(bob['x_std'], values.std())
  assert (bob['x_min'], bob['x_max']) == (1, 4)
  assert cai['x_mean'] == 6
  assert 'y_mean' not in bob


def test_each_of_several_labels_counts():
  ann, bob, cai = _rows(3, [[2, 0], [0, 0], [2, 1]])
  assert ann['train_label_counts'] == [0, 0, 0]
  assert bob['train_label_counts'] == [3, 0, 1]
  assert cai['train_label_counts'] == [0, 1, 1]


def test_client_without_examples_has_no_moments():
  ann, *_ = _rows(3, [2, 0, 2])
  assert ann['train_label_counts'] == [0, 0, 0]
  assert [ann[f'x_{name}'] for name in ('mean', 'std', 'min', 'max')] == 4 * [
    None
  ]


def test_labels_of_a_regression():
  ann, bob, cai = _rows(0, [1.5, 2.5, -1])
  assert bob['train_label_counts'] == []
  assert (bob['y_mean'], bob['y_std'], bob['y_max']) == (2, 0.5, 2.5)
  assert (cai['y_mean'], cai['y_std']) == (-1, 0)
  assert ann['y_mean'] is None
