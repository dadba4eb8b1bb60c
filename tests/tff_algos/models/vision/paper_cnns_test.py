"""Tests of the networks of pFedKM and FedSoft: parameters, against Keras."""

import pytest
import tensorflow as tf

from tests.testing import networks, toys
from tff_algos.numerics import trees


def _build(name, shape, num_outputs):
  return toys.build({'name': name}, shape, num_outputs)


@pytest.mark.parametrize(
  ('name', 'shape', 'num_outputs', 'count'),
  [
    ('small_cnn', (32, 32, 3), 10, 52_202),
    ('letters_cnn', (28, 28, 1), 26, 1_671_578),
    # FedAvg's well-known count.
    ('letters_cnn', (28, 28, 1), 10, 1_663_370),
    ('cifar_cnn', (32, 32, 3), 10, 5_851_338),
  ],
)
def test_parameter_counts(name, shape, num_outputs, count):
  assert trees.num_entries(_build(name, shape, num_outputs).weights_spec()) == (
    count
  )


def _small_cnn(layers):
  yield layers.Conv2D(6, 5, activation='relu')
  yield layers.MaxPool2D()
  yield layers.Conv2D(16, 5, activation='relu')
  yield layers.MaxPool2D()
  yield layers.Flatten()
  yield layers.Dense(120, activation='relu')


def _letters_cnn(layers):
  yield layers.Conv2D(32, 5, padding='same', activation='relu')
  yield layers.MaxPool2D()
  yield layers.Conv2D(64, 5, padding='same', activation='relu')
  yield layers.MaxPool2D()
  yield layers.Flatten()
  yield layers.Dense(512, activation='relu')


def _cifar_cnn(layers):
  for first, second in ((32, 64), (128, 128), (256, 256)):
    yield layers.Conv2D(first, 3, padding='same', activation='relu')
    yield layers.Conv2D(second, 3, padding='same', activation='relu')
    yield layers.MaxPool2D()
  yield layers.Flatten()
  yield layers.Dense(1024, activation='relu')
  yield layers.Dense(512, activation='relu')


@pytest.mark.parametrize(
  ('name', 'shape', 'hidden_layers'),
  [
    # The odd width loses its last column in a pooling.
    ('small_cnn', (16, 19, 2), _small_cnn),
    ('letters_cnn', (8, 12, 2), _letters_cnn),
    ('cifar_cnn', (8, 16, 1), _cifar_cnn),
  ],
)
def test_networks_agree_with_keras(name, shape, hidden_layers):
  layers = tf.keras.layers
  keras = tf.keras.Sequential([*hidden_layers(layers), layers.Dense(5)])
  keras.build((None, *shape))
  networks.check_agrees_with_keras(_build(name, shape, 5), keras, keras.layers)
