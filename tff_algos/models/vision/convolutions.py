"""Convolution with an ordinary or a decomposed kernel."""

import math

import tensorflow as tf

from tff_algos.models.factors import convolution_cost
from tff_algos.numerics import filters


def convolve(
  inputs: tf.Tensor,
  kernel: tf.Tensor | filters.FilterFactors,
  padding: str,
  strides: int = 1,
) -> tf.Tensor:
  """Returns the convolution (a cross-correlation, as is usual), NHWC.

  Args:
    inputs: `[batch, height, width, inputs]`, sides static.
    kernel: `[height, width, inputs, outputs]`; or its factors, from which the
      kernel is built, or with which every channel is convolved with every atom
      and these are mixed, whichever has the lower estimated cost.
    padding: `'SAME'` or `'VALID'`.
    strides: Of both sides, >= 1.
  """
  if isinstance(kernel, filters.FilterFactors):
    if _two_layers_are_faster(inputs, kernel, padding, strides):
      return _mix_atoms(inputs, kernel, padding, strides)
    kernel = filters.build_kernel(kernel)
  return tf.nn.conv2d(inputs, kernel, strides, padding)  # pyright: ignore[reportArgumentType]


def output_side(side: int, filter_side: int, padding: str, strides: int) -> int:
  """Returns the height or width of the output of `convolve`."""
  if padding == 'VALID':
    side -= filter_side - 1
  return math.ceil(side / strides)


def _two_layers_are_faster(inputs, factors, padding, strides):
  height, width = (
    output_side(side, filter_side, padding, strides)
    for side, filter_side in zip(
      inputs.shape[1:3], factors.atoms.shape[:2], strict=True
    )
  )
  cost = convolution_cost.count(
    tuple(factors.atoms.shape),
    tuple(factors.coefficients.shape),
    (height, width),
  )
  return cost.two_layers_are_faster(inputs.shape[0])


def _mix_atoms(inputs, factors, padding, strides):
  """Returns the convolution in two layers, without building the kernel."""
  num_atoms, num_inputs, num_outputs = factors.coefficients.shape
  atoms = tf.repeat(factors.atoms[:, :, tf.newaxis], num_inputs, axis=2)
  maps = tf.nn.depthwise_conv2d(
    inputs, atoms, [1, strides, strides, 1], padding
  )
  # Channel i's map of atom q is number i * num_atoms + q.
  mixing = tf.reshape(
    tf.transpose(factors.coefficients, [1, 0, 2]),
    [1, 1, num_inputs * num_atoms, num_outputs],
  )
  return tf.nn.conv2d(maps, mixing, 1, 'VALID')
