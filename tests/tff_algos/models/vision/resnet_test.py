"""Tests of ResNet-18, against Keras layers that are put together here."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import networks, toys
from tff_algos.core import errors
from tff_algos.models.vision import resnet
from tff_algos.numerics import trees


def _build(shape=(8, 8, 1), num_outputs=3, stem='small'):
  return resnet.build_resnet18(
    resnet.ResNetConfig(stem=stem), shape, num_outputs
  )


def test_parameter_counts_of_the_papers():
  """Pillutla et al.'s federated EMNIST; the original on Tiny-ImageNet."""
  emnist = _build((28, 28, 1), 62).weights_spec()
  assert trees.num_entries(emnist) == 11_199_486
  assert trees.num_entries(emnist) - 512 * 62 - 62 == 11_167_680
  tiny = _build((64, 64, 3), 200, 'large').weights_spec()
  assert trees.num_entries(tiny) == 11_279_112


def _keras(shape, num_outputs, stem):
  """Returns ResNet-18 by Keras, and its layers as they were made."""
  layers, made = tf.keras.layers, []

  def call(layer, *inputs):
    made.append(layer)
    return layer(*inputs)

  def convolve(x, channels, size, stride, groups):
    x = layers.ZeroPadding2D(size // 2)(x)
    x = call(layers.Conv2D(channels, size, stride, use_bias=False), x)
    return call(layers.GroupNormalization(groups, epsilon=1e-5), x)

  inputs = layers.Input(shape)
  if stem == 'small':
    x = layers.ReLU()(convolve(inputs, 64, 3, 1, 8))
  else:
    x = layers.ReLU()(convolve(inputs, 64, 7, 2, 8))
    x = layers.MaxPool2D(3, 2)(layers.ZeroPadding2D(1)(x))
  plan = ((64, 1, 8), (128, 2, 8), (256, 2, 16), (512, 2, 32))
  for channels, first_stride, groups in plan:
    for stride in (first_stride, 1):
      skip = x
      x = layers.ReLU()(convolve(x, channels, 3, stride, groups))
      x = convolve(x, channels, 3, 1, groups)
      if stride == 2:
        skip = convolve(skip, channels, 1, 2, groups)
      x = layers.ReLU()(layers.Add()([x, skip]))
  x = layers.GlobalAveragePooling2D()(x)
  x = call(layers.Dense(num_outputs), x)
  return tf.keras.Model(inputs, x), made


@pytest.mark.parametrize(
  ('shape', 'stem'), [((8, 8, 1), 'small'), ((16, 16, 3), 'large')]
)
def test_network_agrees_with_keras(shape, stem):
  model = _build(shape, 5, stem)
  networks.check_agrees_with_keras(model, *_keras(shape, 5, stem))


def test_a_step_down_the_gradient_lowers_the_loss():
  networks.check_learns(_build(), learning_rate=1e-3)


@pytest.mark.parametrize('shape', [(28, 28), (784,)])
def test_other_inputs_than_images_are_refused(shape):
  with pytest.raises(errors.ConfigError, match='resnet18 takes images .* got'):
    _build(shape)


def test_another_stem_is_refused():
  with pytest.raises(errors.ConfigError, match="'small', 'large', got 'tiny'"):
    resnet.ResNetConfig(stem='tiny')


def test_initial_head():
  """Variance within 5 standard errors: false alarms below 1e-6."""
  weights = _build(num_outputs=62).initialize(tf.constant([0, 1]))
  head = weights['head/kernel'].numpy()
  assert abs(head.var() * (512 + 62) / 2 - 1) < 5 * (2 / head.size) ** 0.5
  np.testing.assert_array_equal(weights['head/bias'], np.zeros(62))


def test_parameters_with_kernels_in_factors():
  """1 x 1 kernels and the normalization stay as they are."""
  model = toys.build(
    {
      **{'name': 'resnet18', 'stem': 'large'},
      'decomposition': {'num_atoms': 9},
    },
    (64, 64, 3),
    200,
  )
  assert trees.num_entries(model.weights_spec()) == 11_273_169
