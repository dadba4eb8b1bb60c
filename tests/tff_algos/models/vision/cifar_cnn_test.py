"""Tests of FedSoft's CIFAR-10 network."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models.vision import cifar_cnn, convolutional
from tff_algos.numerics import trees

_CHANNELS = (32, 64, 128, 128, 256, 256)


def _build(shape=(8, 8, 1), num_outputs=3):
  return cifar_cnn.build_cifar_cnn(
    convolutional.ConvolutionalConfig(), shape, num_outputs
  )


@pytest.fixture(scope='module', name='weights')
def _weights():
  return _build().initialize(tf.constant([3, 4]))


def test_parameter_count_of_the_paper():
  spec = _build((32, 32, 3), 10).weights_spec()
  assert trees.num_entries(spec) == 5_851_338
  assert spec['dense_0/kernel'].shape == (4096, 1024)


def _convolve(inputs, kernel, bias):
  """3x3 with padding 1, written as nine shifted products."""
  _, height, width, _ = inputs.shape
  padded = np.pad(inputs, [(0, 0), (1, 1), (1, 1), (0, 0)])
  return bias + sum(
    padded[:, i : i + height, j : j + width] @ kernel[i, j]
    for i in range(3)
    for j in range(3)
  )


def test_network_agrees_with_numpy(weights):
  shifted = {name: leaf.numpy() + 0.01 for name, leaf in weights.items()}
  x = np.random.default_rng(0).normal(size=(2, 8, 8, 1)).astype(np.float32)
  hidden = x.astype(np.float64)
  for i in range(6):
    hidden = _convolve(
      hidden, shifted[f'conv_{i}/kernel'], shifted[f'conv_{i}/bias']
    ).clip(0)
    if i % 2:
      n, height, width, depth = hidden.shape
      blocks = hidden.reshape(n, height // 2, 2, width // 2, 2, depth)
      hidden = blocks.max(axis=(2, 4))
  hidden = hidden.reshape(2, -1)
  for i in range(3):
    hidden = hidden @ shifted[f'dense_{i}/kernel'] + shifted[f'dense_{i}/bias']
    hidden = hidden.clip(0) if i < 2 else hidden
  ours = _build().apply(shifted, x)
  np.testing.assert_allclose(ours, hidden, rtol=1e-4, atol=1e-4)


def test_initial_weights_are_xavier_normal_with_zero_biases(weights):
  """Variances within 5 standard errors: false alarms below 1e-5."""
  depths = (1, *_CHANNELS)
  fans = {f'conv_{i}': 9 * (depths[i] + depths[i + 1]) for i in range(6)}
  fans |= {'dense_0': 256 + 1024, 'dense_1': 1024 + 512, 'dense_2': 512 + 3}
  for name, fan in fans.items():
    kernel = weights[f'{name}/kernel'].numpy()
    error = abs(kernel.var() * fan / 2 - 1)
    assert error < 5 * (2 / kernel.size) ** 0.5, name
    assert not weights[f'{name}/bias'].numpy().any()


@pytest.mark.parametrize('shape', [(32, 32), (28, 32, 3), (32, 36, 3)])
def test_other_inputs_than_images_are_refused(shape):
  text = r'cifar_cnn takes images .* multiples of 8 .* got shape'
  with pytest.raises(errors.ConfigError, match=text):
    _build(shape)
