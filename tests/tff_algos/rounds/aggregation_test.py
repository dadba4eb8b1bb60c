"""Tests of the aggregators on hand examples, whole and in blocks."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.numerics import trees
from tff_algos.rounds import aggregation

# Every number is a short binary fraction, so that sums are exact.
_RESULTS = {
  'update': {
    'w': tf.constant([[1.0, 2], [3, -4], [0.5, 8], [-2, 1]]),
    'b': tf.constant([1.0, 2, 4, -8]),
  },
  'weight': tf.constant([1.0, 0, 2, 5]),
  'slots': tf.constant([[1.0, 0, 0], [2, 0, 1], [0, 0, 1], [1, 0, 0]]),
}
_CASES = {
  'sum': (aggregation.Sum(), 'update'),
  'mean': (aggregation.WeightedMean('weight'), 'update'),
  'cluster_mean': (aggregation.ClusterMean('slots'), 'update'),
}


def _rows(rows):
  return tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), _RESULTS)


def _aggregate(aggregator, field, *blocks):
  parts = [aggregator.partial_sum(_rows(rows), field) for rows in blocks]
  total = parts[0]
  for part in parts[1:]:
    total = trees.add(total, part)
  return aggregator.finish(total)


def _check_equal(first, second):
  tf.nest.map_structure(np.testing.assert_array_equal, first, second)


def test_sum_adds_over_the_cohort():
  total = _aggregate(*_CASES['sum'], [0, 1, 2, 3])
  np.testing.assert_array_equal(total['w'], [2.5, 7])
  np.testing.assert_array_equal(total['b'], -1)


def test_weighted_mean_divides_by_the_total_weight():
  mean = _aggregate(*_CASES['mean'], [0, 1, 2, 3])
  assert float(mean.weight) == 8
  np.testing.assert_array_equal(mean.value['w'], [-1, 23 / 8])
  np.testing.assert_array_equal(mean.value['b'], -31 / 8)


def test_cluster_mean_counts_a_client_once_a_slot():
  """FedSoft, Algorithm 1, line 18: a client may serve several clusters."""
  mean = _aggregate(*_CASES['cluster_mean'], [0, 1, 2, 3])
  np.testing.assert_array_equal(mean.weight, [4, 0, 2])
  np.testing.assert_array_equal(
    mean.value['w'], [[1.25, -1.25], [0, 0], [1.75, 2]]
  )
  np.testing.assert_array_equal(mean.value['b'], [-0.75, 0, 3])


def test_nobody_gives_zeros_with_weight_zero_and_no_nan():
  mean = _aggregate(aggregation.WeightedMean('weight'), 'update', [1])
  assert float(mean.weight) == 0
  np.testing.assert_array_equal(mean.value['w'], [0, 0])
  empty = _aggregate(*_CASES['cluster_mean'], [2])
  np.testing.assert_array_equal(empty.weight, [0, 0, 1])
  np.testing.assert_array_equal(empty.value['w'][:2], np.zeros([2, 2]))


@pytest.mark.parametrize('case', _CASES)
def test_order_of_clients_changes_nothing(case):
  whole = _aggregate(*_CASES[case], [0, 1, 2, 3])
  _check_equal(_aggregate(*_CASES[case], [2, 0, 3, 1]), whole)


@pytest.mark.parametrize('case', _CASES)
@pytest.mark.parametrize(
  'blocks', [([0], [1], [2], [3]), ([3, 1], [0, 2]), ([0, 1, 2], [3])]
)
def test_blocks_add_up_to_the_whole(case, blocks):
  whole = _aggregate(*_CASES[case], [0, 1, 2, 3])
  _check_equal(_aggregate(*_CASES[case], *blocks), whole)


def test_cluster_mean_is_a_matrix_product():
  """FedSoft, Eq. 27: with rows that sum to 1 the centres are V w."""
  generator = np.random.default_rng(0)
  weights = generator.dirichlet(np.ones(6), 3).T.astype(np.float32)
  values = generator.normal(size=(6, 2, 4)).astype(np.float32)
  aggregator = aggregation.ClusterMean('slots')
  results = {'slots': tf.constant(weights), 'value': tf.constant(values)}
  mean = aggregator.finish(aggregator.partial_sum(results, 'value'))
  np.testing.assert_allclose(mean.weight, np.ones(3), rtol=1e-6)
  np.testing.assert_allclose(
    mean.value, np.einsum('ns,nij->sij', weights, values), rtol=1e-5, atol=1e-6
  )


def test_rows_are_written_of_who_took_part_and_was_not_refused():
  table = {'a': np.arange(8.0, dtype='f').reshape(4, 2), 'b': np.arange(4)}
  collected = aggregation.Collected(
    {
      'a': tf.constant([[9.0, 8], [7, 6], [5, 4]]),
      'b': tf.constant([9, 8, 7], tf.int64),
    },
    tf.constant([0, 1, 3]),
    tf.constant([True, False, True]),
  )
  written = aggregation.write_rows(
    tf.nest.map_structure(tf.constant, table), collected
  )
  np.testing.assert_array_equal(written['a'], [[9, 8], [2, 3], [4, 5], [5, 4]])
  np.testing.assert_array_equal(written['b'], [9, 1, 2, 7])


def test_without_contributions_the_old_model_stays():
  old, new = ({'w': tf.constant([float(i)])} for i in (1, 2))
  for weight, expected in ((0.0, 1), (0.5, 2)):
    mean = aggregation.Mean(new, tf.constant(weight))
    kept = aggregation.mean_or_old(mean, old)
    assert kept['w'].numpy().tolist() == [expected]


def test_a_cluster_that_nobody_serves_keeps_its_model():
  mean = aggregation.Mean(
    {'w': tf.constant([[5.0], [0.0], [7.0]])}, tf.constant([2.0, 0, 1e-9])
  )
  models, metrics = aggregation.replace_clusters(
    mean, {'w': tf.constant([[1.0], [2.0], [3.0]])}
  )
  assert models['w'].numpy().ravel().tolist() == [5, 2, 7]
  assert {name: int(n) for name, n in metrics.items()} == {
    'num_empty_clusters': 1
  }
