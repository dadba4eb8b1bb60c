"""Tests of the assignment of examples (FedSoft) and clients (IFCA)."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, points, toys
from tff_algos.core import algorithm
from tff_algos.stages.clusters import assignment

_CENTERS = np.array([[0.0, 0], [4, 0], [0, 4]], np.float32)
_POINTS = np.array([[0.1, 0], [0, 3.5], [-1, -1], [9, 9.1]], np.float32)
_MODEL = points.model(2)


def _data(x, mask=None):
  x = np.asarray(x, np.float32)
  mask = np.ones(len(x)) if mask is None else mask
  return algorithm.ClientData(
    tf.constant(x), tf.zeros([len(x)]), tf.constant(mask, tf.float32)
  )


def _count(centers, x, mask=None):
  data = _data(x, mask)
  losses = assignment.cluster_losses(_MODEL, {'point': centers}, data)
  return assignment.best_cluster_counts(losses, data.mask).numpy()


def test_losses_are_one_an_example_and_cluster():
  losses = assignment.cluster_losses(
    _MODEL, {'point': tf.constant(_CENTERS)}, _data(_POINTS)
  )
  gaps = _CENTERS[:, np.newaxis] - _POINTS
  np.testing.assert_allclose(losses, (gaps**2).sum(axis=-1), rtol=1e-6)


def _best(losses, mask):
  return assignment.best_cluster(
    tf.constant(losses, tf.float32), tf.constant(mask, tf.float32)
  ).numpy()


@pytest.mark.parametrize(
  ('losses', 'mask', 'expected'),
  [
    # The mean decides, not the number of examples that fit best.
    ([[1, 1, 9], [2, 2, 2]], [1, 1, 1], 1),
    # And only that of the real examples.
    ([[1, 1, 9], [2, 2, 2]], [1, 1, 0], 0),
    ([[3, 3], [2, 4], [4, 2]], [1, 1], 0),
    ([[5, 3], [2, 4], [4, 2]], [1, 1], 1),
    # A broken model fits nobody, but its padding does no harm.
    ([[0, np.inf], [7, 7]], [1, 1], 1),
    ([[0, np.inf], [7, 7]], [1, 0], 0),
    ([[2, 2], [1, 1]], [0, 0], 0),
  ],
)
def test_best_cluster_has_the_lowest_mean_loss(losses, mask, expected):
  assert _best(losses, mask) == expected


def test_every_point_counts_for_its_nearest_center():
  assert _count(_CENTERS, _POINTS).tolist() == [2, 0, 2]


def test_permuted_centers_permute_the_counts():
  counts = _count(_CENTERS, _POINTS)
  for order in ([2, 0, 1], [1, 2, 0], [0, 2, 1]):
    np.testing.assert_array_equal(
      _count(_CENTERS[order], _POINTS), counts[order]
    )


def test_ties_go_to_the_lowest_cluster():
  assert _count(np.zeros([3, 2], np.float32), _POINTS).tolist() == [4, 0, 0]
  same = np.stack([_CENTERS[1], _CENTERS[2], _CENTERS[2]])
  assert _count(same, _POINTS)[2] == 0


def test_a_center_with_nan_fits_nothing():
  broken = _CENTERS.copy()
  broken[0, 1] = np.nan
  losses = assignment.cluster_losses(_MODEL, {'point': broken}, _data(_POINTS))
  assert np.isposinf(losses[0]).all()
  counts = _count(broken, _POINTS)
  assert counts[0] == 0
  assert counts.sum() == len(_POINTS)


def test_an_infinite_center_fits_nothing():
  broken = _CENTERS.copy()
  broken[2] = np.inf
  assert _count(broken, _POINTS)[2] == 0


def test_padding_is_not_counted_whatever_lies_in_it():
  padded = np.concatenate([_POINTS, np.full([3, 2], np.nan), [[0, 4]]])
  mask = [1, 1, 1, 1, 0, 0, 0, 0]
  np.testing.assert_array_equal(
    _count(_CENTERS, padded, mask), _count(_CENTERS, _POINTS)
  )


def test_classes_are_assigned_by_cross_entropy():
  model = toys.mlp((4, 4, 1))
  examples = toys.image_clients(2).examples(1)
  data = client_data.build(examples.x, examples.y)
  weights = [model.initialize(tf.constant([0, s])) for s in range(3)]
  stacked = tf.nest.map_structure(lambda *rows: tf.stack(rows), *weights)
  losses = assignment.cluster_losses(model, stacked, data)
  for s in range(3):
    alone = model.example_losses(model.apply(weights[s], data.x), data.y)
    np.testing.assert_allclose(losses[s], alone, rtol=1e-5)


@pytest.mark.parametrize('smoother', [0.0, 1e-4, 0.3])
def test_importance_is_the_share_but_at_least_the_smoother(smoother):
  """FedSoft: max(n_ks / n_k, sigma), not renormalised."""
  importance = assignment.importance_weights(
    tf.constant([6.0, 2, 0]), tf.constant(8.0), smoother
  )
  expected = np.maximum([0.75, 0.25, 0], smoother)
  np.testing.assert_array_equal(importance, expected.astype(np.float32))
  assert 1 <= float(tf.reduce_sum(importance)) <= 1 + 2 * smoother + 1e-6


def test_a_client_without_examples_gets_the_smoother_everywhere():
  importance = assignment.importance_weights(
    tf.zeros([3]), tf.constant(0.0), 0.125
  )
  assert importance.numpy().tolist() == [0.125] * 3


@pytest.mark.parametrize('value', [np.nan, np.inf, 3e38])
def test_an_example_that_fits_no_cluster_makes_all_counts_unknown(value):
  """With 3e38 the example is finite and its squared distances are not."""
  broken = np.concatenate([_POINTS, [[0, value]]])
  counts = _count(_CENTERS, broken)
  assert np.isnan(counts).all()
  importance = assignment.importance_weights(
    tf.constant(counts), tf.constant(5.0), 1e-4
  )
  assert np.isnan(importance).all()
