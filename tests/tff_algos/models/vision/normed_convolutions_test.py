"""Tests of convolutions with group normalization, against NumPy."""

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models.vision import normed_convolutions


def _normalize(values, groups, scale, offset):
  """Group normalization of one example `[height, width, channels]`."""
  per_group = values.shape[-1] // groups
  normalized = np.empty_like(values)
  for g in range(groups):
    part = slice(g * per_group, (g + 1) * per_group)
    block = values[..., part]
    deviation = np.sqrt(((block - block.mean()) ** 2).mean() + 1e-5)
    normalized[..., part] = (block - block.mean()) / deviation
  return normalized * scale + offset


def _convolve(image, kernel, stride, is_depthwise):
  """A 3x3 convolution of an odd-sided image, padded by one, pixel by pixel."""
  padded = np.pad(image, [(1, 1), (1, 1), (0, 0)])
  height, width, _ = image.shape
  rows = []
  for i in range(0, height, stride):
    row = []
    for j in range(0, width, stride):
      window = padded[i : i + 3, j : j + 3]
      row.append(
        (window * kernel[:, :, 0]).sum(axis=(0, 1))
        if is_depthwise
        else np.einsum('abi,abio->o', window, kernel)
      )
    rows.append(row)
  return np.array(rows)


@pytest.mark.parametrize('is_depthwise', [False, True])
@pytest.mark.parametrize('stride', [1, 2])
def test_layer_agrees_with_numpy(stride, is_depthwise):
  generator = np.random.default_rng(stride)
  x = generator.normal(size=(2, 5, 7, 4)).astype(np.float32)
  weights = OrderedDict()
  inputs = 1 if is_depthwise else 4
  normed_convolutions.add(weights, 'a', tf.constant([1, 2]), 3, inputs, 4)
  weights['a/scale'] += generator.normal(size=4).astype(np.float32)
  weights['a/offset'] += generator.normal(size=4).astype(np.float32)
  kernel, scale, offset = (leaf.numpy() for leaf in weights.values())
  ours = normed_convolutions.apply(
    *(weights, 'a', x, 'group'),
    **{'stride': stride, 'max_groups': 2, 'is_depthwise': is_depthwise},
  )
  for image, found in zip(x.astype(np.float64), ours, strict=True):
    convolved = _convolve(image, kernel, stride, is_depthwise)
    expected = _normalize(convolved, 2, scale, offset)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_affine_scales_and_shifts_each_channel():
  generator = np.random.default_rng(0)
  x = generator.normal(size=(1, 5, 7, 4)).astype(np.float32)
  weights = OrderedDict()
  normed_convolutions.add(weights, 'a', tf.constant([1, 2]), 3, 4, 4)
  weights['a/scale'] += generator.normal(size=4).astype(np.float32)
  weights['a/offset'] += generator.normal(size=4).astype(np.float32)
  kernel, scale, offset = (leaf.numpy() for leaf in weights.values())
  (ours,) = normed_convolutions.apply(weights, 'a', x, 'affine')
  expected = _convolve(x[0].astype(np.float64), kernel, 1, False)
  expected = expected * scale + offset
  np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_layers_start_he_normal_and_differ():
  """Variances within 5 standard errors: false alarms below 1e-5."""
  weights = OrderedDict()
  normed_convolutions.add(weights, 'a', tf.constant([1, 2]), 3, 20, 30)
  normed_convolutions.add(weights, 'b', tf.constant([1, 2]), 3, 20, 30)
  for name in 'ab':
    kernel = weights[f'{name}/kernel'].numpy()
    error = abs(kernel.var() * 9 * 20 / 2 - 1)
    assert error < 5 * (2 / kernel.size) ** 0.5
    np.testing.assert_array_equal(weights[f'{name}/scale'], np.ones(30))
    np.testing.assert_array_equal(weights[f'{name}/offset'], np.zeros(30))
  assert np.abs(weights['a/kernel'] - weights['b/kernel']).max() > 0.01


@pytest.mark.parametrize(
  ('normalization', 'text'),
  [
    ('none', "normalization must be one of 'group', 'affine', got 'none'"),
    ('affine', "'affine', but pretrained.file is empty: .* to 'group'"),
  ],
)
def test_other_normalizations_are_refused(normalization, text):
  with pytest.raises(errors.ConfigError, match=text):
    normed_convolutions.NormedConfig(normalization=normalization)
