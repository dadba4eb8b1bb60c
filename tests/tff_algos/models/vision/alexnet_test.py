"""Tests of AlexNet, against Keras's layers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import networks
from tff_algos.core import errors
from tff_algos.models.vision import alexnet
from tff_algos.numerics import trees


def _build(shape=(28, 28, 1), num_outputs=62, **options):
  return alexnet.build_alexnet(
    alexnet.AlexNetConfig(**options), shape, num_outputs
  )


@pytest.mark.parametrize(
  ('shape', 'num_outputs', 'count'),
  [
    ((28, 28, 1), 62, 57_242_366),
    # torchvision's, for ImageNet.
    ((224, 224, 3), 1000, 61_100_840),
  ],
)
def test_parameter_counts(shape, num_outputs, count):
  assert trees.num_entries(_build(shape, num_outputs).weights_spec()) == count


def _keras(side):
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Resizing(side, side),
      layers.ZeroPadding2D(2),
      layers.Conv2D(64, 11, 4, activation='relu'),
      layers.MaxPool2D(3, 2),
      layers.Conv2D(192, 5, padding='same', activation='relu'),
      layers.MaxPool2D(3, 2),
      layers.Conv2D(384, 3, padding='same', activation='relu'),
      layers.Conv2D(256, 3, padding='same', activation='relu'),
      layers.Conv2D(256, 3, padding='same', activation='relu'),
      layers.MaxPool2D(3, 2),
      layers.Flatten(),
      layers.Dense(20, activation='relu'),
      layers.Dense(10, activation='relu'),
      layers.Dense(5),
    ]
  )


@pytest.mark.parametrize('side', [63, 100, 224])
def test_network_agrees_with_keras(side):
  """With fewer units in the dense layers."""
  model = _build((28, 20, 2), 5, image_side=side, hidden_sizes=(20, 10))
  keras = _keras(side)
  keras.build((None, 28, 20, 2))
  networks.check_agrees_with_keras(model, keras, keras.layers)


def test_signals_neither_vanish_nor_explode_from_the_start():
  model = _build((28, 28, 1), 62, image_side=63, hidden_sizes=(64, 64))
  x = np.random.default_rng(0).uniform(size=(8, 28, 28, 1)).astype(np.float32)
  outputs = model.apply(model.initialize(tf.constant([0, 1])), x)
  assert 1e-2 < np.std(outputs) < 1e2


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'image_side': 62}, 'image_side must be an integer >= 63, got 62'),
    ({'hidden_sizes': (0,)}, 'hidden_sizes must be an integer >= 1'),
    ({'shape': (784,)}, r'alexnet takes images .* got shape \(784,\)'),
  ],
)
def test_what_is_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(**options)
