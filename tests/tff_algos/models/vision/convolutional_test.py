"""Tests of networks from a layout: pooling, normalization, bad input.

The layouts of the papers have tests of their own, against Keras and NumPy.
"""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models.vision import convolutional
from tff_algos.numerics import trees


def _layout(channels=(4, 8, 8), kernel_size=3, **options):
  defaults = {'convolutions_per_pooling': 2, 'hidden_sizes': (5,)}
  kernel_sizes = (kernel_size,) * len(channels)
  return convolutional.Layout(
    'toy', kernel_sizes, channels, **(defaults | options)
  )


def _build(layout, shape=(4, 6, 2), num_outputs=3, **options):
  config = convolutional.ConvolutionalConfig(**options)
  return convolutional.build(layout, config, shape, num_outputs)


def test_poolings_follow_whole_groups_of_convolutions():
  """3 convolutions, pooled by 2: one pooling, so 4x6 become 2x3."""
  assert _layout().shrinkage == 2
  assert _layout(convolutions_per_pooling=1).shrinkage == 8
  shapes = {
    name: tuple(leaf.shape)
    for name, leaf in _build(_layout()).weights_spec().items()
  }
  assert shapes == {
    **{'conv_0/kernel': (3, 3, 2, 4), 'conv_0/bias': (4,)},
    **{'conv_1/kernel': (3, 3, 4, 8), 'conv_1/bias': (8,)},
    **{'conv_2/kernel': (3, 3, 8, 8), 'conv_2/bias': (8,)},
    **{'dense_0/kernel': (2 * 3 * 8, 5), 'dense_0/bias': (5,)},
    **{'dense_1/kernel': (5, 3), 'dense_1/bias': (3,)},
  }


def test_initial_weights_are_xavier_normal_with_zero_biases():
  """Variances within 5 standard errors: false alarms below 1e-5."""
  layout = _layout(channels=(32, 64), kernel_size=5, hidden_sizes=(512,))
  fans = {
    'conv_0': 25 * (1 + 32),
    'conv_1': 25 * (32 + 64),
    'dense_0': 4 * 4 * 64 + 512,
    'dense_1': 512 + 3,
  }
  weights = _build(layout, (8, 8, 1)).initialize(tf.constant([0, 1]))
  for name, fan in fans.items():
    kernel = weights[f'{name}/kernel'].numpy()
    error = abs(kernel.var() * fan / 2 - 1)
    assert error < 5 * (2 / kernel.size) ** 0.5, name
    assert not weights[f'{name}/bias'].numpy().any()


def test_a_layout_without_hidden_layers_is_linear_in_its_features():
  model = _build(_layout(channels=(2,), hidden_sizes=()), (2, 2, 1))
  weights = model.initialize(tf.constant([1, 2]))
  x = np.random.default_rng(0).normal(size=(3, 2, 2, 1)).astype(np.float32)
  features = tf.nn.relu(
    tf.nn.conv2d(x, weights['conv_0/kernel'], 1, 'SAME')
  ).numpy()
  expected = features.reshape(3, 8) @ weights['dense_0/kernel'].numpy()
  np.testing.assert_allclose(model.apply(weights, x), expected, rtol=1e-5)


def test_group_norm_is_offered_and_starts_as_the_identity_map():
  layout = _layout(convolutions_per_pooling=1, channels=(4, 8))
  model = _build(layout, (8, 8, 1), normalization='group')
  weights = model.initialize(tf.constant([0, 1]))
  plain = _build(layout, (8, 8, 1)).weights_spec()
  assert trees.num_entries(weights) == trees.num_entries(plain) + 2 * (4 + 8)
  np.testing.assert_array_equal(weights['norm_1/scale'], np.ones(8))
  np.testing.assert_array_equal(weights['norm_1/offset'], np.zeros(8))
  x = np.random.default_rng(0).normal(size=(2, 8, 8, 1)).astype(np.float32)
  outputs = model.apply(weights, x)
  # Normalization takes a common factor of the input out again.
  np.testing.assert_allclose(
    model.apply(weights, 100 * x), outputs, rtol=0.05, atol=0.05
  )


@pytest.mark.parametrize('shape', [(4, 4), (3, 4, 1), (4, 5, 1), (10,)])
def test_other_inputs_than_images_are_refused(shape):
  text = r'toy takes images .* multiples of 2 .* got shape'
  with pytest.raises(errors.ConfigError, match=text):
    _build(_layout(), shape)


def test_batch_norm_is_refused():
  with pytest.raises(errors.ConfigError, match="'batch_norm' is refused"):
    convolutional.ConvolutionalConfig(normalization='batch_norm')
