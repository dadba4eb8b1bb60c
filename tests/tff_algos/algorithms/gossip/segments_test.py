"""Segments against NumPy."""

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.gossip import segments
from tff_algos.numerics import trees

_RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
  ('num_entries', 'num_segments', 'sizes'),
  [(7, 1, (7,)), (7, 3, (3, 2, 2)), (6, 3, (2, 2, 2)), (3, 3, (1, 1, 1))],
)
def test_sizes_differ_by_one_at_most(num_entries, num_segments, sizes):
  assert segments.segment_sizes(num_entries, num_segments) == sizes


def test_rows_are_flattened_as_one_structure_is():
  stacked = OrderedDict(
    kernel=tf.constant(_RNG.normal(size=(4, 3, 2))),
    bias=tf.constant(_RNG.normal(size=(4, 2))),
    scale=tf.constant(_RNG.normal(size=4)),
  )
  found = segments.flatten_rows(stacked)
  assert found.shape == [4, 9]
  for i in range(4):
    np.testing.assert_array_equal(
      found[i], trees.flatten(trees.take(stacked, tf.constant(i)))
    )


def test_a_value_a_segment_is_one_an_entry():
  values = tf.constant([[1.0, 2, 3], [4, 5, 6]])
  expected = [[1, 1, 1, 2, 2, 3, 3], [4, 4, 4, 5, 5, 6, 6]]
  assert segments.spread(values, (3, 2, 2)).numpy().tolist() == expected


def test_every_segment_is_mixed_by_its_own_weights():
  weights = _RNG.random((3, 2, 5)).astype(np.float32)
  rows = _RNG.normal(size=(5, 7)).astype(np.float32)
  found = segments.mix_rows(tf.constant(weights), tf.constant(rows), (3, 2, 2))
  expected = np.zeros((2, 7))
  for entry, segment in enumerate([0, 0, 0, 1, 1, 2, 2]):
    for i in range(2):
      for j in range(5):
        expected[i, entry] += weights[segment, i, j] * rows[j, entry]
  np.testing.assert_allclose(found, expected, rtol=1e-5)
