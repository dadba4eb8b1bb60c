"""What the tests of deep networks check in the same way."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_algos.core import model as model_lib


def shifted(model: model_lib.Model) -> dict[str, np.ndarray]:
  """Returns weights of which none is 0, 1 or small."""
  generator = np.random.default_rng(1)
  return {
    name: leaf.numpy() + generator.normal(0, 0.5, leaf.shape).astype('f4')
    for name, leaf in model.initialize(tf.constant([0, 1])).items()
  }


def check_agrees_with_keras(
  model: model_lib.Model,
  keras: tf.keras.Model,
  keras_layers: Sequence[tf.keras.layers.Layer],
) -> None:
  """Compares outputs where Keras has our weights, all of them off their start.

  Args:
    model: Ours.
    keras: The same network.
    keras_layers: Its layers in the order of our weights. How a kernel of
      depthwise convolutions is laid out may differ.
  """
  generator = np.random.default_rng(0)
  weights = model.initialize(tf.constant([3, 4]))
  for name, leaf in weights.items():
    weights[name] = leaf + generator.normal(0, 0.1, leaf.shape).astype('f4')
  variables = [leaf for layer in keras_layers for leaf in layer.weights]
  for leaf, variable in zip(weights.values(), variables, strict=True):
    if leaf.shape != variable.shape:
      leaf = tf.transpose(leaf, [0, 1, 3, 2])
    variable.assign(leaf)
  x = generator.normal(size=(3, *model.input_shape)).astype(np.float32)
  expected = keras(x).numpy()
  assert expected.std() > 0.1
  np.testing.assert_allclose(
    model.apply(weights, x), expected, rtol=1e-3, atol=1e-3 * expected.std()
  )


def check_learns(model: model_lib.Model, learning_rate: float) -> None:
  """Takes one step of gradient descent: the loss falls, all weights move."""
  generator = np.random.default_rng(0)
  x = generator.normal(size=(6, *model.input_shape)).astype(np.float32)
  labels = tf.constant(generator.integers(0, model.num_outputs, 6), tf.int32)
  weights = model.initialize(tf.constant([0, 1]))

  def loss(weights):
    outputs = model.apply(weights, x)
    return tf.reduce_mean(model.example_losses(outputs, labels))

  with tf.GradientTape() as tape:
    tape.watch(weights)
    before = loss(weights)
  slope = tape.gradient(before, weights)
  for name, leaf in slope.items():
    assert np.abs(leaf).max() > 0, name
  moved = {
    name: leaf - learning_rate * slope[name] for name, leaf in weights.items()
  }
  assert loss(moved) < before
