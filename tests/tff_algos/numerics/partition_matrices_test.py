"""Tests of partitions as matrices (pFedKM, section 3), and of their algebra."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.numerics import partition_matrices


def _random(seed, num_points=12, num_clusters=3):
  """Two partitions without an empty cluster."""
  generator = np.random.default_rng(seed)
  return [
    generator.permutation(np.arange(num_points) % num_clusters).astype(np.int32)
    for _ in range(2)
  ]


def _averaging(assignment, num_clusters=3):
  ones = tf.ones([len(assignment)], tf.float64)
  return partition_matrices.averaging_matrix(
    assignment, ones, num_clusters
  ).numpy()


def _membership(assignment, num_clusters=3):
  ones = tf.ones([len(assignment)], tf.float64)
  return partition_matrices.membership_matrix(
    assignment, ones, num_clusters
  ).numpy()


def _transition(before, after, num_clusters=3):
  ones = tf.ones([len(before)], tf.float64)
  return partition_matrices.transition_matrix(
    before, after, ones, num_clusters
  ).numpy()


@pytest.mark.parametrize('seed', range(5))
def test_membership_is_the_pseudo_inverse_of_averaging(seed):
  assignment = _random(seed)[0]
  averaging, membership = _averaging(assignment), _membership(assignment)
  np.testing.assert_allclose(averaging.sum(axis=0), 1)
  np.testing.assert_allclose(membership @ averaging, np.eye(3), atol=1e-12)
  np.testing.assert_allclose(membership, np.linalg.pinv(averaging), atol=1e-12)


def test_averaging_is_a_loop_over_members():
  assignment, weights = np.array([2, 0, 2, 2, 0]), np.array([1.0, 2, 3, 0, 6])
  models = np.arange(10.0).reshape(5, 2)
  averaging = partition_matrices.averaging_matrix(
    tf.constant(assignment), tf.constant(weights), 4
  ).numpy()
  np.testing.assert_allclose(averaging.sum(axis=0), [1, 0, 1, 0])
  means = averaging.T @ models
  np.testing.assert_allclose(means[0], (2 * models[1] + 6 * models[4]) / 8)
  np.testing.assert_allclose(means[2], (models[0] + 3 * models[2]) / 4)
  np.testing.assert_array_equal(means[[1, 3]], 0)


@pytest.mark.parametrize('seed', range(5))
def test_columns_of_the_transition_sum_to_1(seed):
  np.testing.assert_allclose(_transition(*_random(seed)).sum(axis=0), 1)


def test_unchanged_partition_has_the_identity_and_renamed_a_permutation():
  before = _random(0)[0]
  np.testing.assert_array_equal(_transition(before, before), np.eye(3))
  names = np.array([2, 0, 1], np.int32)
  transition = _transition(before, names[before])
  np.testing.assert_array_equal(transition, np.eye(3)[names])
  # P_after = P_before Q has a solution then.
  np.testing.assert_allclose(
    _averaging(before) @ transition, _averaging(names[before])
  )


def test_rows_need_not_sum_to_1():
  """Clusters of 9 and 1 become 5 and 5: the paper's Eq. 8 does not hold."""
  before = np.array([0] * 9 + [1], np.int32)
  after = np.array([0] * 5 + [1] * 5, np.int32)
  np.testing.assert_allclose(
    _transition(before, after, 2), [[1, 0.8], [0, 0.2]]
  )


def test_an_empty_cluster_stays_as_it_was():
  before = np.array([0, 0, 1, 2], np.int32)
  after = np.array([0, 0, 0, 2], np.int32)
  expected = [[2 / 3, 0, 0], [1 / 3, 1, 0], [0, 0, 1]]
  np.testing.assert_allclose(_transition(before, after), expected)


@pytest.mark.parametrize('seed', range(3))
def test_means_move_as_equation_11_says(seed):
  """(1 - b) O + b X P' = O ((1 - b) I + b Q) - b (O J - X) P', any partitions.

  O: group models, X: uploads, O J: what the clients received.
  """
  before, after = _random(seed)
  generator = np.random.default_rng(seed)
  models, uploads = (
    generator.normal(size=(5, 3)),
    generator.normal(size=(5, 12)),
  )
  averaging, mixing = _averaging(after), 0.7
  received = models @ _membership(before)
  expected = (1 - mixing) * models + mixing * uploads @ averaging
  steps = (1 - mixing) * np.eye(3) + mixing * _transition(before, after)
  found = models @ steps - mixing * (received - uploads) @ averaging
  np.testing.assert_allclose(found, expected, atol=1e-10)
