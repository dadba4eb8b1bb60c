import numpy as np
import pytest
import tensorflow as tf

from tff_algos.runtimes import vectorization


def _rows() -> np.ndarray:
  return np.random.default_rng(0).normal(size=[5, 7]).astype(np.float32)


def test_map_stacked_equals_a_loop():
  rows = _rows()
  total, last = vectorization.map_stacked(
    lambda row: (tf.reduce_sum(row), row[-1]), rows
  )
  np.testing.assert_allclose(total, rows.sum(axis=1), rtol=1e-6)
  np.testing.assert_array_equal(last, rows[:, -1])


@pytest.mark.parametrize('k', [1, 3, 7])
def test_top_k_is_converted(k):
  """Without the converter, TensorFlow raises here."""
  rows = _rows()
  values, indices = tf.vectorized_map(
    lambda row: tuple(tf.math.top_k(row, k)),
    rows,
    fallback_to_while_loop=False,
  )
  expected = np.argsort(-rows, axis=1)[:, :k]
  np.testing.assert_array_equal(indices, expected)
  np.testing.assert_array_equal(
    values, np.take_along_axis(rows, expected, axis=1)
  )


def test_stable_argsort_of_matrices_is_converted():
  rows = np.array([[[2, 1, 2], [0, 0, 0]], [[3, 1, 2], [1, 1, 0]]], np.int32)
  order = tf.vectorized_map(
    lambda matrix: tf.argsort(matrix, stable=True),
    rows,
    fallback_to_while_loop=False,
  )
  np.testing.assert_array_equal(order, np.argsort(rows, axis=-1, kind='stable'))
