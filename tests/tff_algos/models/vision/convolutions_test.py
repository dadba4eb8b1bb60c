"""Tests of convolutions with kernels in factors, both ways, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import draws
from tff_algos.models.vision import convolutions
from tff_algos.numerics import filters


def _factors(side=3, num_atoms=4, num_outputs=5):
  return filters.FilterFactors(
    draws.normal(side, side, num_atoms),
    draws.normal(num_atoms, 2, num_outputs, seed=1),
  )


def _convolve(inputs, kernel, padding, strides):
  """The definition, in loops."""
  reach = kernel.shape[0]
  sides = inputs.shape[1:3]
  if padding == 'SAME':
    outputs = [-(-side // strides) for side in sides]
    short = [
      max((out - 1) * strides + reach - side, 0)
      for out, side in zip(outputs, sides, strict=True)
    ]
    before_after = [(s // 2, s - s // 2) for s in short]
    inputs = np.pad(inputs, [(0, 0), *before_after, (0, 0)])
  else:
    outputs = [-(-(side - reach + 1) // strides) for side in sides]
  result = np.zeros((len(inputs), *outputs, kernel.shape[-1]))
  for i in range(outputs[0]):
    for j in range(outputs[1]):
      window = inputs[
        :,
        i * strides : i * strides + reach,
        j * strides : j * strides + reach,
      ]
      result[:, i, j] = np.einsum('buvi,uvio->bo', window, kernel)
  return result


def _rebuild(inputs, factors, padding, strides):
  kernel = filters.build_kernel(factors)
  return convolutions.convolve(inputs, kernel, padding, strides)


@pytest.mark.parametrize('padding', ['SAME', 'VALID'])
@pytest.mark.parametrize('strides', [1, 2])
def test_both_ways_are_the_convolution_with_the_built_kernel(padding, strides):
  inputs, factors = draws.normal(2, 8, 7, 2, seed=2), _factors()
  kernel = np.einsum('uvq,qio->uvio', *factors)
  expected = _convolve(inputs, kernel, padding, strides)
  for i, side in enumerate((8, 7)):
    assert expected.shape[1 + i] == convolutions.output_side(
      side, 3, padding, strides
    )
  for way, one in (
    (convolutions.convolve, kernel),
    (convolutions.convolve, factors),
    (_rebuild, factors),
    (convolutions._mix_atoms, factors),
  ):
    outputs = way(inputs, one, padding, strides)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  'way', [convolutions.convolve, _rebuild, convolutions._mix_atoms]
)
def test_gradients_are_those_of_the_chain_rule(way):
  """dF/dalpha = <G, D>, dF/dD = sum alpha G, with G = dF/dkernel; and finite
  differences along a random direction.
  """
  inputs, factors = draws.normal(2, 6, 6, 2, seed=2), _factors()

  def loss(atoms, coefficients):
    factors = filters.FilterFactors(atoms, coefficients)
    return tf.reduce_sum(tf.sin(way(inputs, factors, 'VALID', 2)))

  factors = [tf.constant(leaf) for leaf in factors]
  with tf.GradientTape() as tape:
    tape.watch(factors)
    value = loss(*factors)
  slopes = tape.gradient(value, factors)
  kernel = tf.constant(np.einsum('uvq,qio->uvio', *factors))
  with tf.GradientTape() as tape:
    tape.watch(kernel)
    value = tf.reduce_sum(tf.sin(tf.nn.conv2d(inputs, kernel, 2, 'VALID')))
  slope = tape.gradient(value, kernel).numpy()
  atoms, coefficients = (leaf.numpy() for leaf in factors)
  np.testing.assert_allclose(
    slopes[0], np.einsum('uvio,qio->uvq', slope, coefficients), 1e-3, 1e-4
  )
  np.testing.assert_allclose(
    slopes[1], np.einsum('uvio,uvq->qio', slope, atoms), 1e-3, 1e-4
  )
  step = 1e-2
  ways = [draws.normal(*leaf.shape, seed=3) for leaf in factors]
  ahead, behind = (
    float(loss(*(a + s * b for a, b in zip(factors, ways, strict=True))))
    for s in (step, -step)
  )
  along = sum(
    float(tf.reduce_sum(a * b)) for a, b in zip(slopes, ways, strict=True)
  )
  # The third derivative of the sine of a product, times step**2.
  np.testing.assert_allclose((ahead - behind) / (2 * step), along, rtol=0.02)


def test_the_way_is_the_one_that_costs_less():
  """One atom for twenty outputs mixes cheaply; nine of 3x3 pixels do not.

  Four atoms for 60 outputs at 64 places: 2 * 64 * (9 * 36 + 240) are 72,192
  multiplications per image, a depthwise one counted nine times; the kernel
  takes 2 * 64 * 540 = 69,120, and 4,320 per batch to rebuild.
  """

  def is_in_two_layers(side, num_atoms, num_outputs=20, batch_size=None):
    factors = _factors(side, num_atoms, num_outputs)
    graph = tf.function(
      lambda x: convolutions.convolve(x, factors, 'SAME')
    ).get_concrete_function(tf.TensorSpec([batch_size, 8, 8, 2]))
    operations = graph.graph.get_operations()
    return 'DepthwiseConv2dNative' in {one.type for one in operations}

  assert not is_in_two_layers(3, 9)
  assert is_in_two_layers(7, 1)
  assert not is_in_two_layers(3, 4, 60)
  assert not is_in_two_layers(3, 4, 60, batch_size=2)
  assert is_in_two_layers(3, 4, 60, batch_size=1)
