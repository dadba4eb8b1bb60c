"""Convolution with an ordinary or a decomposed kernel."""

import math

import tensorflow as tf

from tff_algos.numerics import filters

# Time per multiplication of a depthwise over that of an ordinary convolution in
# TensorFlow 2.14 on a CPU, with gradients: 28e-8 ms against 3.1e-8 ms for 64
# channels; for 32 and fewer the ratio is nearer to 4.
_DEPTHWISE_SLOWDOWN = 9


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
  """Returns whether two layers take less time than rebuilding the kernel.

  By the multiplications per image (Chen and Qiu 2025, section 3), of which the
  depthwise ones are slower. The kernel is rebuilt once per batch; a batch of
  unknown size is taken as large.
  """
  height, width = (
    output_side(side, filter_side, padding, strides)
    for side, filter_side in zip(
      inputs.shape[1:3], factors.atoms.shape[:2], strict=True
    )
  )
  num_atoms, num_inputs, num_outputs = factors.coefficients.shape
  positions = height * width
  atom_size = math.prod(factors.atoms.shape[:2]) * num_inputs
  kernel_size = atom_size * num_outputs
  batch_size = inputs.shape[0]
  rebuilding = kernel_size * num_atoms / batch_size if batch_size else 0
  depthwise = atom_size * num_atoms * positions
  mixing = num_inputs * num_atoms * num_outputs * positions
  return (
    _DEPTHWISE_SLOWDOWN * depthwise + mixing
    < kernel_size * positions + rebuilding
  )


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
