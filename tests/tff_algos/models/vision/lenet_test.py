"""Tests of the LeNets: parameters, the network against Keras, bad input."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import networks, toys
from tff_algos.core import errors
from tff_algos.models.vision import lenet
from tff_algos.numerics import trees, unit_dropout


def _build(variant, num_outputs=10, num_atoms=0, shape=(32, 32, 3)):
  return toys.build(
    {
      **{'name': 'lenet', 'variant': variant},
      'decomposition': {'num_atoms': num_atoms},
    },
    shape,
    num_outputs,
  )


@pytest.mark.parametrize(
  ('variant', 'num_outputs', 'plain', 'decomposed'),
  [
    ('fed_dyn', 10, 797_962, 729_804),
    ('fed_dyn', 100, 815_332, 747_174),
    ('fed_rep', 10, 307_842, 239_684),
    ('fed_rep_wide', 100, 1_075_044, 941_350),
    ('fed_pac', 10, 107_690, 99_261),
  ],
)
def test_parameter_counts(variant, num_outputs, plain, decomposed):
  for num_atoms, expected in ((0, plain), (9, decomposed)):
    spec = _build(variant, num_outputs, num_atoms).weights_spec()
    assert trees.num_entries(spec) == expected


def test_network_agrees_with_keras():
  """An odd height loses its last row in a pooling, in Keras as here."""
  model = _build('fed_rep', 5, shape=(19, 16, 2))
  keras = tf.keras.Sequential(
    [
      tf.keras.layers.Conv2D(64, 5, activation='relu'),
      tf.keras.layers.MaxPool2D(),
      tf.keras.layers.Conv2D(64, 5, activation='relu'),
      tf.keras.layers.MaxPool2D(),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(120, activation='relu'),
      tf.keras.layers.Dense(64, activation='relu'),
      tf.keras.layers.Dense(5),
    ]
  )
  keras.build((None, 19, 16, 2))
  networks.check_agrees_with_keras(model, keras, keras.layers)


def test_network_with_borders_and_leaky_relu_agrees_with_keras():
  model = _build('fed_pac', shape=(32, 32, 3))
  keras = tf.keras.Sequential()
  for channels, size, border in ((16, 5, 0), (32, 5, 1), (64, 3, 1)):
    keras.add(tf.keras.layers.ZeroPadding2D(border))
    keras.add(tf.keras.layers.Conv2D(channels, size))
    keras.add(tf.keras.layers.LeakyReLU(0.01))
    keras.add(tf.keras.layers.MaxPool2D())
  keras.add(tf.keras.layers.Flatten())
  keras.add(tf.keras.layers.Dense(128))
  keras.add(tf.keras.layers.LeakyReLU(0.01))
  keras.add(tf.keras.layers.Dense(10))
  keras.build((None, 32, 32, 3))
  networks.check_agrees_with_keras(model, keras, keras.layers)


@pytest.mark.parametrize('shape', [(28, 28), (15, 32, 3), (32, 12, 3)])
def test_other_inputs_than_images_that_are_large_enough_are_refused(shape):
  with pytest.raises(errors.ConfigError, match='lenet .* of at least 16, got'):
    _build('fed_dyn', shape=shape)


def test_an_unknown_variant_is_refused():
  with pytest.raises(errors.ConfigError, match="variant must be one of 'fed_"):
    lenet.LeNetConfig(variant='mcmahan')


def test_the_wide_one_drops_units_of_its_first_hidden_layer_alone():
  """Its hidden units are made 1, and the layers after it pass them on."""
  model = _build('fed_rep_wide', 100)
  weights = {
    name: tf.zeros(leaf.shape) for name, leaf in model.weights_spec().items()
  }
  weights['dense_0/bias'] += 1
  weights['dense_1/kernel'] = tf.eye(256, 128)
  weights['dense_2/kernel'] = tf.eye(128, 100)
  draws = unit_dropout.Draws(
    tf.constant([1, 2]), tf.constant(0), tf.constant([4, 9])
  )
  images = tf.zeros([2, 32, 32, 3])
  np.testing.assert_array_equal(model.apply(weights, images), np.ones([2, 100]))
  with unit_dropout.in_step(0.6, draws):
    outputs = model.apply(weights, images)
  with unit_dropout.in_step(0.6, draws):
    expected = unit_dropout.drop(tf.ones([2, 256]), 0)
  np.testing.assert_array_equal(outputs, expected[:, :100])


@pytest.mark.parametrize('variant', ['fed_dyn', 'fed_rep', 'fed_pac'])
def test_the_others_drop_no_units(variant):
  model = _build(variant)
  weights = model.initialize(tf.constant([0, 1]))
  text = 'unit_dropout_rate is 0.6, but the model has no layer that drops units'
  with (
    pytest.raises(errors.ConfigError, match=text),
    unit_dropout.in_step(0.6, None),
  ):
    model.apply(weights, tf.zeros([1, 32, 32, 3]))
