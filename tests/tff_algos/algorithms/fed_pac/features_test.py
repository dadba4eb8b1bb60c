"""Tests of features before the last layer, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, toys
from tff_algos.algorithms.fed_pac import features
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.models import keras_models

_MODEL = toys.mlp()
_WEIGHTS = {
  name: leaf + 0.1
  for name, leaf in _MODEL.initialize(tf.constant([1, 2])).items()
}
_X = np.random.default_rng(0).normal(size=(4, 4, 4, 1)).astype(np.float32)
_Y = np.array([2, 0, 2, 1], np.int32)


def _parts():
  parted = features.FeatureModel(_MODEL)
  return parted, *parted.groups.split(_WEIGHTS)


def _hidden(x):
  kernel, bias = _WEIGHTS['dense_0/kernel'], _WEIGHTS['dense_0/bias']
  return np.maximum(x.reshape(-1, 16) @ kernel + bias, 0)


def test_features_and_outputs_make_the_network():
  parted, shared, head = _parts()
  assert list(head) == ['dense_1/kernel', 'dense_1/bias']
  found = parted.features(shared, _X)
  np.testing.assert_allclose(found, _hidden(_X), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
    parted.outputs(head, found), _MODEL.apply(_WEIGHTS, _X), rtol=1e-5
  )


def test_a_head_without_bias_and_convolutions():
  model = contract.MODELS['convolution']()
  weights = model.initialize(tf.constant([1, 2]))
  parted = features.FeatureModel(model)
  shared, head = parted.groups.split(weights)
  outputs = parted.outputs(head, parted.features(shared, _X))
  np.testing.assert_allclose(outputs, model.apply(weights, _X), rtol=1e-5)


def _perceptron(input_shape, num_outputs, activation=None):
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input(input_shape),
      tf.keras.layers.Dense(5, 'tanh'),
      tf.keras.layers.Dense(num_outputs, activation),
    ]
  )


def test_a_keras_head_with_bias():
  model = keras_models.from_keras(_perceptron, (16,), 3)
  weights = model.initialize(tf.constant([1, 2]))
  parted = features.FeatureModel(model)
  x = tf.constant(_X.reshape(-1, 16))
  shared, head = parted.groups.split(weights)
  assert [leaf.shape.rank for leaf in head.values()] == [2, 1]
  kernel, bias = shared.values()
  hidden = parted.features(shared, x)
  np.testing.assert_allclose(hidden, np.tanh(x @ kernel + bias), rtol=1e-5)
  np.testing.assert_allclose(
    parted.outputs(head, hidden), model.apply(weights, x), rtol=1e-5, atol=1e-6
  )


def test_a_keras_model_of_numbers_and_ids():
  def build(input_shape, num_outputs):
    del input_shape
    layers = tf.keras.layers
    numbers, city = layers.Input((3,)), layers.Input((1,), dtype='int32')
    embedded = layers.Flatten()(layers.Embedding(2, 2)(city))
    joined = layers.Concatenate()([numbers, embedded])
    return tf.keras.Model([numbers, city], layers.Dense(num_outputs)(joined))

  model = keras_models.from_keras(build, (4,), 3)
  assert features.FeatureModel(model).width == 5
  x = model.random_inputs(50, tf.constant([1, 2])).numpy()
  assert (x[:, 3] == 0).all() and (x[:, :3] < -1).any(0).all()


def test_an_activation_after_the_last_layer_is_refused():
  model = keras_models.from_keras(
    lambda shape, count: _perceptron(shape, count, 'relu'), (16,), 3
  )
  with pytest.raises(errors.ConfigError, match='changes them, say by an act'):
    features.FeatureModel(model)


def test_sums_by_class_leave_padding_out():
  x = _X.copy()
  x[3] = np.nan
  parted, shared, _ = _parts()
  data = algorithm_lib.ClientData(
    *(tf.constant(one) for one in (x, _Y, np.array([1, 1, 1, 0], np.float32)))
  )
  sums = parted.class_sums(shared, data)
  hidden = _hidden(_X)
  np.testing.assert_array_equal(sums.counts, [1, 0, 2])
  expected = [hidden[1], np.zeros(5), hidden[0] + hidden[2]]
  np.testing.assert_allclose(sums.sums, expected, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(sums.squares, (hidden[:3] ** 2).sum(), rtol=1e-5)


@pytest.mark.parametrize(
  'model',
  [
    toys.linear(3),
    toys.build({'name': 'logistic_regression'}, (3,), 2),
  ],
)
def test_models_without_features_are_refused(model):
  with pytest.raises(errors.ConfigError, match='features need a classifier'):
    features.FeatureModel(model)
