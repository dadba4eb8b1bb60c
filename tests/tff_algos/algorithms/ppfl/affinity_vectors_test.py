"""Tests of the graph of likeness against the matrices that it never builds."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.ppfl import affinity_vectors

_GENERATOR = np.random.default_rng(1)
_HISTOGRAMS = np.array(
  [[3, 1, 0], [6, 2, 0], [0, 0, 5], [0, 0, 0], [1, 1, 1]], np.float64
)


def _matrix(features):
  return np.array(features @ tf.transpose(features))


def _features(is_shifted):
  return affinity_vectors.cosine_features(tf.constant(_HISTOGRAMS), is_shifted)


@pytest.mark.parametrize('is_shifted', [False, True])
def test_edges_are_cosines_and_a_histogram_of_zeros_has_none(is_shifted):
  found = _matrix(_features(is_shifted))
  expected = np.zeros((5, 5))
  for i, one in enumerate(_HISTOGRAMS):
    for j, other in enumerate(_HISTOGRAMS):
      if i == 3 or j == 3:
        continue
      cosine = one @ other / np.sqrt((one @ one) * (other @ other))
      expected[i, j] = 0.5 + 0.5 * cosine if is_shifted else cosine
  np.testing.assert_allclose(found, expected, atol=1e-12)
  np.testing.assert_allclose(found[0, 1], 1)
  assert np.linalg.eigvalsh(found).min() >= -1e-9


def test_tiny_and_huge_counts_have_the_same_directions():
  scales = np.array([[1e-30], [1.0], [1e30]], np.float32)
  rows = tf.constant(scales * np.array([[1, 2, 3]], np.float32))
  found = affinity_vectors.cosine_features(rows, False).numpy()
  np.testing.assert_allclose(found, np.tile(found[1], (3, 1)), rtol=1e-6)


def test_laplacian_is_the_penaltys_gradient():
  """1/2 sum_ij w_ij |v_i - v_j|^2 = <V, (D - W) V>, of gradient 2 (D - W) V."""
  features = tf.constant(_GENERATOR.normal(size=(7, 3)))  # Signs, too.
  values = tf.constant(_GENERATOR.dirichlet(np.ones(4), 7))
  matrix = _matrix(features)
  expected = 0.5 * sum(
    matrix[i, j] * np.sum((values[i] - values[j]).numpy() ** 2)
    for i in range(7)
    for j in range(7)
  )
  laplacian = np.diag(matrix.sum(axis=1)) - matrix
  with tf.GradientTape() as tape:
    tape.watch(values)
    found = affinity_vectors.disagreement(features, values)
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  np.testing.assert_allclose(
    affinity_vectors.laplacian_product(features, values),
    laplacian @ values,
    atol=1e-12,
  )
  np.testing.assert_allclose(
    tape.gradient(found, values), 2 * laplacian @ values, atol=1e-12
  )
  np.testing.assert_allclose(
    affinity_vectors.degrees(features)[:, 0], matrix.sum(axis=1), atol=1e-12
  )
  np.testing.assert_allclose(
    affinity_vectors.multiply(features, values), matrix @ values, atol=1e-12
  )


def test_what_a_point_is_to_itself_does_not_matter():
  features = _features(False)
  values = tf.constant(_GENERATOR.normal(size=(5, 2)))
  matrix = _matrix(features)
  np.fill_diagonal(matrix, 0)
  expected = (np.diag(matrix.sum(axis=1)) - matrix) @ values
  np.testing.assert_allclose(
    affinity_vectors.laplacian_product(features, values), expected, atol=1e-12
  )


def test_surrogate_is_above_and_touches_but_not_with_a_zero_diagonal():
  """Di et al., Section 3: -<C, W C> is concave, so its tangent is above it."""

  def gap(matrix, values, at):
    """The majorizer of -<V, W V> at a point, minus what it majorizes."""
    tangent = -np.sum(at * (matrix @ at)) - 2 * np.sum(
      (matrix @ at) * (values - at)
    )
    return tangent + np.sum(values * (matrix @ values))

  matrix = _matrix(_features(False))
  hollow = matrix - np.diag(np.diag(matrix))
  at = _GENERATOR.dirichlet(np.ones(3), 5)
  draws = _GENERATOR.dirichlet(np.ones(3), (2_000, 5))
  np.testing.assert_allclose(gap(matrix, at, at), 0, atol=1e-12)
  assert min(gap(matrix, one, at) for one in draws) >= -1e-12
  assert min(gap(hollow, one, at) for one in draws) < -1e-3
