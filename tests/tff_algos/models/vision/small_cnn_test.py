"""Tests of the small network for images."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models.vision import small_cnn
from tff_algos.numerics import trees


def _build(shape, num_outputs):
  return small_cnn.build_small_cnn(
    small_cnn.SmallCnnConfig(), shape, num_outputs
  )


def test_parameter_count_for_cifar():
  spec = _build((32, 32, 3), 10).weights_spec()
  assert trees.num_entries(spec) == 52_202


def test_network_agrees_with_keras():
  """An odd width loses its last column in a pooling, in Keras as here."""
  model = _build((16, 19, 2), 5)
  weights = model.initialize(tf.constant([3, 4]))
  keras = tf.keras.Sequential(
    [
      tf.keras.layers.Conv2D(6, 5, activation='relu'),
      tf.keras.layers.MaxPool2D(),
      tf.keras.layers.Conv2D(16, 5, activation='relu'),
      tf.keras.layers.MaxPool2D(),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(120, activation='relu'),
      tf.keras.layers.Dense(5),
    ]
  )
  x = np.random.default_rng(0).normal(size=(3, 16, 19, 2)).astype(np.float32)
  keras.build(x.shape)
  shifted = {name: leaf + 0.05 for name, leaf in weights.items()}
  keras.set_weights([leaf.numpy() for leaf in shifted.values()])
  ours = model.apply(shifted, x)
  np.testing.assert_allclose(ours, keras(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('shape', [(28, 28), (15, 32, 3), (32, 12, 3), (10,)])
def test_other_inputs_than_images_that_are_large_enough_are_refused(shape):
  with pytest.raises(errors.ConfigError, match='at least 16, got shape'):
    _build(shape, 3)
