"""Tests of where the cluster models start."""

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.stages import initialization

_MODEL = toys.linear(3)


def _kernels(num_clusters, seed):
  weights = initialization.cluster_models(
    _MODEL, num_clusters, tf.constant(seed)
  )
  return weights['kernel'].numpy()


def test_every_cluster_has_a_draw_of_its_own():
  kernels = _kernels(4, [3, 7])
  assert kernels.shape == (4, 3, 1)
  assert len(np.unique(kernels)) == 12


def test_draws_follow_from_the_seed_and_not_from_the_number_of_clusters():
  kernels = _kernels(4, [3, 7])
  np.testing.assert_array_equal(_kernels(4, [3, 7]), kernels)
  np.testing.assert_array_equal(_kernels(2, [3, 7]), kernels[:2])
  assert not np.any(_kernels(4, [3, 8]) == kernels)


def test_a_draw_is_the_models_own():
  """Zero biases stay zero, and the scale of the weights is that of the model."""
  weights = initialization.cluster_models(toys.mlp(), 50, tf.constant([0, 1]))
  assert not weights['dense_0/bias'].numpy().any()
  one = np.std(toys.mlp().initialize(tf.constant([0, 1]))['dense_0/kernel'])
  np.testing.assert_allclose(np.std(weights['dense_0/kernel']), one, rtol=0.2)
