import importlib

import numpy as np
import pytest
import tensorflow as tf

_NUM_LETTERS = 26


@pytest.fixture(name='network')
def _network(kept_registries):
  return importlib.import_module('docs.reproduction.fed_soft_network')


def test_layers_are_those_of_the_authors_code(network):
  net = network.build_net((28, 28, 1), _NUM_LETTERS)
  weights = [weight.shape for weight in net.get_weights()]
  assert weights == [
    *((5, 5, 1, 32), (32,), (5, 5, 32, 64), (64,)),
    *((3136, 512), (512,), (512, 26), (26,)),
  ]
  image = np.random.default_rng(0).random((1, 28, 28, 1), np.float32)
  outputs = [layer.output for layer in net.layers]
  *hidden, scores, _, probabilities = tf.keras.Model(net.inputs, outputs)(image)
  for output in hidden:
    assert np.min(output) < 0  # No activation.
  kernel, bias = net.layers[-3].get_weights()
  expected = np.maximum(hidden[-1] @ kernel + bias, 0)
  np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)
  assert 0 < np.sum(expected == 0) < _NUM_LETTERS
  expected = np.exp(expected) / np.exp(expected).sum()
  np.testing.assert_allclose(probabilities, expected, rtol=1e-4)


def test_its_outputs_are_probabilities(network):
  model = network.build(None, (28, 28, 1), _NUM_LETTERS)
  weights = model.initialize(tf.constant([0, 1]))
  outputs = model.apply(weights, tf.zeros([2, 28, 28, 1]))
  np.testing.assert_allclose(outputs, np.full((2, 26), 1 / 26), rtol=1e-5)
