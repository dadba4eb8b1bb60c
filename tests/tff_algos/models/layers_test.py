"""Tests of layers against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import draws
from tff_algos.core import errors
from tff_algos.models import layers


@pytest.mark.parametrize(
  ('shape', 'fans'),
  [([300, 200], 500), ([5, 5, 8, 16], 25 * 24), ([784, 26], 810)],
)
def test_xavier_normal_has_the_variance_of_glorot_and_bengio(shape, fans):
  """Mean and variance within 5 standard errors: false alarms below 1e-5."""
  kernel = layers.xavier_normal(tf.constant([1, 2]), 0, shape).numpy()
  assert kernel.shape == tuple(shape)
  variance = 2 / fans
  assert abs(kernel.mean()) < 5 * (variance / kernel.size) ** 0.5
  assert abs(kernel.var() / variance - 1) < 5 * (2 / kernel.size) ** 0.5


def test_kernels_of_layers_and_seeds_differ_and_repeat():
  def kernel(seed, index):
    return layers.xavier_normal(tf.constant(seed), index, [4, 5]).numpy()

  np.testing.assert_array_equal(kernel([1, 2], 3), kernel([1, 2], 3))
  others = [kernel([1, 2], 4), kernel([1, 3], 3), kernel([0, 2], 3)]
  for other in others:
    assert not np.isclose(kernel([1, 2], 3), other).any()


def test_dense_with_and_without_bias():
  inputs, kernel, bias = (
    draws.normal(3, 4),
    draws.normal(4, 2, seed=1),
    draws.normal(2),
  )
  np.testing.assert_allclose(
    layers.dense(inputs, kernel), inputs @ kernel, rtol=1e-5
  )
  np.testing.assert_allclose(
    layers.dense(inputs, kernel, bias), inputs @ kernel + bias, rtol=1e-5
  )


@pytest.mark.parametrize(
  ('channels', 'groups'), [(1, 1), (7, 7), (8, 8), (11, 1), (12, 6), (32, 8)]
)
@pytest.mark.parametrize('spatial', [(), (3, 2)])
def test_group_norm_agrees_with_numpy(channels, groups, spatial):
  inputs = 3 + 2 * draws.normal(4, *spatial, channels)
  scale, offset = draws.normal(channels, seed=1), draws.normal(channels, seed=2)
  expected = np.empty_like(inputs)
  size = channels // groups
  for row in range(4):
    for group in range(groups):
      part = np.s_[row, ..., group * size : (group + 1) * size]
      values = inputs[part].astype(np.float64)
      expected[part] = (values - values.mean()) / (values.var() + 1e-5) ** 0.5
  outputs = layers.group_norm(inputs, scale, offset)
  np.testing.assert_allclose(
    outputs, expected * scale + offset, rtol=1e-3, atol=1e-3
  )


@pytest.mark.parametrize('name', ['batch', 'batch_norm', 'batchnorm'])
def test_batch_norm_is_refused_with_the_reason_and_the_way_out(name):
  text = f"'{name}' is refused: .*moving statistics.*non-IID.*Use 'group'"
  with pytest.raises(errors.ConfigError, match=text):
    layers.check_normalization(name)


def test_other_normalizations_are_checked():
  for name in layers.NORMALIZATIONS:
    assert layers.check_normalization(name) == name
  text = "normalization must be one of 'none', 'group', got 'layer'"
  with pytest.raises(errors.ConfigError, match=text):
    layers.check_normalization('layer')


def test_layer_norm_agrees_with_numpy():
  inputs = 3 + 2 * draws.normal(4, 5, 8)
  scale, offset = draws.normal(8, seed=1), draws.normal(8, seed=2)
  mean = inputs.mean(axis=-1, keepdims=True)
  deviation = (inputs.var(axis=-1, keepdims=True) + 1e-5) ** 0.5
  np.testing.assert_allclose(
    layers.layer_norm(inputs, scale, offset),
    (inputs - mean) / deviation * scale + offset,
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.parametrize('norm', [layers.group_norm, layers.layer_norm])
def test_norms_of_bfloat16_take_their_moments_in_float32(norm):
  """The channels differ by less than bfloat16 tells their mean from."""
  inputs = tf.cast(64 + 0.5 * draws.normal(2, 3, 4), tf.bfloat16)
  scale, offset = np.ones(4, np.float32), np.zeros(4, np.float32)
  exact = norm(tf.cast(inputs, tf.float32), scale, offset)
  outputs = norm(
    inputs, *(tf.cast(leaf, tf.bfloat16) for leaf in (scale, offset))
  )
  assert outputs.dtype == tf.bfloat16
  np.testing.assert_allclose(
    tf.cast(outputs, tf.float32), exact, rtol=2**-8, atol=2**-8
  )
