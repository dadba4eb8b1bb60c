"""Tests of FedSoft's letters network."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models.vision import convolutional, letters_cnn
from tff_algos.numerics import trees


def _build(shape=(8, 8, 1), num_outputs=3):
  return letters_cnn.build_letters_cnn(
    convolutional.ConvolutionalConfig(), shape, num_outputs
  )


def test_parameter_counts_of_the_papers():
  """FedSoft's letters: 26 classes; FedAvg's well-known count with 10."""
  letters = _build((28, 28, 1), 26).weights_spec()
  assert trees.num_entries(letters) == 1_671_578
  digits = _build((28, 28, 1), 10).weights_spec()
  assert trees.num_entries(digits) == 1_663_370


def test_network_agrees_with_keras():
  model = _build((8, 12, 2), 5)
  weights = model.initialize(tf.constant([3, 4]))
  keras = tf.keras.Sequential(
    [
      tf.keras.layers.Conv2D(32, 5, padding='same', activation='relu'),
      tf.keras.layers.MaxPool2D(),
      tf.keras.layers.Conv2D(64, 5, padding='same', activation='relu'),
      tf.keras.layers.MaxPool2D(),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(512, activation='relu'),
      tf.keras.layers.Dense(5),
    ]
  )
  x = np.random.default_rng(0).normal(size=(3, 8, 12, 2)).astype(np.float32)
  keras.build(x.shape)
  shifted = {name: leaf + 0.05 for name, leaf in weights.items()}
  keras.set_weights([leaf.numpy() for leaf in shifted.values()])
  ours = model.apply(shifted, x)
  np.testing.assert_allclose(ours, keras(x), rtol=1e-4, atol=1e-4)


def test_initial_weights_are_xavier_normal_with_zero_biases():
  """Variances within 5 standard errors: false alarms below 1e-5."""
  fans = {
    'conv_0': 25 * (1 + 32),
    'conv_1': 25 * (32 + 64),
    'dense_0': 2 * 2 * 64 + 512,
    'dense_1': 512 + 3,
  }
  weights = _build().initialize(tf.constant([0, 1]))
  for name, fan in fans.items():
    kernel = weights[f'{name}/kernel'].numpy()
    error = abs(kernel.var() * fan / 2 - 1)
    assert error < 5 * (2 / kernel.size) ** 0.5, name
    assert not weights[f'{name}/bias'].numpy().any()


@pytest.mark.parametrize('shape', [(28, 28), (30, 28, 1), (28, 27, 1), (10,)])
def test_other_inputs_than_images_are_refused(shape):
  with pytest.raises(errors.ConfigError, match=r'multiples of 4 .* got shape'):
    _build(shape)
