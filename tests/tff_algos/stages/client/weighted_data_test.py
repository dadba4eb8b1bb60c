"""Tests of examples that carry weights."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.rounds import client_rows
from tff_algos.stages.client import weighted_data

_X = np.arange(8, dtype=np.float32).reshape(4, 2)
_Y = np.arange(4, dtype=np.int32)
_WEIGHTS = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], 'f')


def _dense():
  return algorithm.ClientData(*map(tf.constant, (_X, _Y, [1.0, 1, 1, 0])))


def _span():
  """The same examples as rows 1 to 3 of a common tensor."""
  common = client_rows.Rows(
    tf.constant(np.concatenate([_X[:1] - 9, _X[:3], _X[:1] * 0])),
    tf.constant(np.concatenate([_Y[:1] - 9, _Y[:3], _Y[:1] * 0])),
  )
  span = client_rows.Span(tf.constant(1), tf.constant(3))
  return client_rows.SpanData(common, span, tf.range(4))


@pytest.mark.parametrize('build', [_dense, _span])
def test_a_batch_has_the_weights_of_its_examples(build):
  data = build()
  weighted = weighted_data.WeightedData(data, tf.constant(_WEIGHTS))
  np.testing.assert_array_equal(weighted.x, data.x)
  np.testing.assert_array_equal(weighted.y, data.y)
  np.testing.assert_array_equal(weighted.mask, [1, 1, 1, 0])
  batch = weighted.take(tf.constant([2, 0, 2]), tf.constant([1.0, 1, 0]))
  np.testing.assert_array_equal(batch.x, _X[[2, 0, 2]])
  np.testing.assert_array_equal(batch.y, _Y[[2, 0, 2]])
  np.testing.assert_array_equal(batch.mask, [1, 1, 0])
  np.testing.assert_array_equal(batch.weights, _WEIGHTS[[2, 0, 2]])
  changed = batch.with_x(batch.x + 1)
  np.testing.assert_array_equal(changed.x, _X[[2, 0, 2]] + 1)
  for field in ('y', 'mask', 'weights'):
    np.testing.assert_array_equal(
      getattr(changed, field), getattr(batch, field)
    )


def test_a_batch_is_a_structure_of_tensors_and_can_be_taken_from_again():
  weighted = weighted_data.WeightedData(_dense(), tf.constant(_WEIGHTS))
  batch = weighted.take(tf.constant([3, 1]), tf.constant([0.0, 1]))

  @tf.function(autograph=False)
  def second(batch):
    return batch.take(tf.constant([1]), tf.constant([1.0]))

  found = second(batch)
  assert len(tf.nest.flatten(found)) == 4
  np.testing.assert_array_equal(found.x, _X[[1]])
  np.testing.assert_array_equal(found.weights, _WEIGHTS[[1]])
