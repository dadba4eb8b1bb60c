"""Tests of examples with false labels."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.adversaries import flipped_data
from tff_algos.core import algorithm

_X = np.arange(8, dtype=np.float32).reshape(4, 2)
_Y = np.array([0, 1, 2, 0], np.int32)


@pytest.mark.parametrize(
  ('is_flipped', 'labels'), [(True, [2, 1, 0, 2]), (False, [0, 1, 2, 0])]
)
def test_labels_and_those_of_batches_are_flipped(is_flipped, labels):
  data = flipped_data.FlippedData(
    algorithm.ClientData(*map(tf.constant, (_X, _Y, [1.0, 1, 1, 0]))),
    tf.constant(is_flipped),
    3,
  )
  np.testing.assert_array_equal(data.x, _X)
  np.testing.assert_array_equal(data.y, labels)
  assert data.y.dtype == tf.int32
  np.testing.assert_array_equal(data.mask, [1, 1, 1, 0])
  batch = data.take(tf.constant([2, 0]), tf.constant([1.0, 0]))
  np.testing.assert_array_equal(batch.x, _X[[2, 0]])
  np.testing.assert_array_equal(batch.y, np.array(labels)[[2, 0]])
  np.testing.assert_array_equal(batch.mask, [1, 0])
