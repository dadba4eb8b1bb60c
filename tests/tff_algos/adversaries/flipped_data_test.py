"""Tests of examples with false labels."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys, unigrams
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
    toys.mlp(),
  )
  np.testing.assert_array_equal(data.x, _X)
  np.testing.assert_array_equal(data.y, labels)
  assert data.y.dtype == tf.int32
  np.testing.assert_array_equal(data.mask, [1, 1, 1, 0])
  batch = data.take(tf.constant([2, 0]), tf.constant([1.0, 0]))
  np.testing.assert_array_equal(batch.x, _X[[2, 0]])
  np.testing.assert_array_equal(batch.y, np.array(labels)[[2, 0]])
  np.testing.assert_array_equal(batch.mask, [1, 0])


@pytest.mark.parametrize(
  ('padding', 'flipped'), [(0, [0, 4, 3, 2, 1]), (3, [4, 2, 1, 3, 0])]
)
def test_padded_places_stay_and_no_word_becomes_padding(padding, flipped):
  model = dataclasses.replace(unigrams.model(5), padding_label=padding)
  y = tf.constant([[0, 1, 2], [3, 4, padding]])
  data = flipped_data.FlippedData(
    algorithm.ClientData(y, y, tf.ones([2])), tf.constant(True), model
  )
  expected = [flipped[:3], [*flipped[3:], padding]]
  np.testing.assert_array_equal(data.y, expected)
  batch = data.take(tf.constant([1]), tf.ones([1]))
  np.testing.assert_array_equal(batch.y, expected[1:])
