"""Tests of losses by cluster and of the assignment of clients (IFCA)."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, points, toys
from tff_algos.stages.clusters import assignment

_CENTERS = np.array([[0.0, 0], [4, 0], [0, 4]], np.float32)
_POINTS = np.array([[0.1, 0], [0, 3.5], [-1, -1], [9, 9.1]], np.float32)
_DATA = client_data.build(_POINTS, np.zeros(4))
_MODEL = points.model(2)


def test_losses_are_one_an_example_and_cluster():
  losses = assignment.cluster_losses(
    _MODEL, {'point': tf.constant(_CENTERS)}, _DATA
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


def test_a_center_with_nan_fits_nothing():
  broken = _CENTERS.copy()
  broken[0, 1] = np.nan
  losses = assignment.cluster_losses(_MODEL, {'point': broken}, _DATA)
  assert np.isposinf(losses[0]).all()


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
