"""Layers as pure functions of (weights, inputs), and their initial values."""

from collections.abc import Sequence

import tensorflow as tf

from tff_algos.core import errors

NORMALIZATIONS = ('none', 'group')


def check_normalization(name: str) -> str:
  """Raises ConfigError unless `name` is a normalization that we offer."""
  if name in ('batch', 'batch_norm', 'batchnorm'):
    raise errors.ConfigError(
      f"normalization {name!r} is refused: batch normalization's moving "
      'statistics are no weights that an average of clients, a cluster mean or '
      'a proximal term could treat rightly, and small non-IID batches make '
      "them differ between clients. Use 'group', which keeps no statistics"
    )
  if name not in NORMALIZATIONS:
    raise errors.ConfigError(
      f'normalization must be one of {NORMALIZATIONS}, got {name!r}'
    )
  return name


def xavier_normal(
  seed: tf.Tensor, index: int, shape: Sequence[int]
) -> tf.Tensor:
  """Returns a kernel of variance 2 / (fan_in + fan_out) (Glorot and Bengio).

  Args:
    seed: int32 `[2]` of the whole model.
    index: Number of the layer, so that layers differ.
    shape: `[inputs, outputs]`, or `[height, width, inputs, outputs]`.
  """
  receptive_field = 1
  for size in shape[:-2]:
    receptive_field *= size
  fans = receptive_field * (shape[-2] + shape[-1])
  return tf.random.stateless_normal(
    shape,
    tf.random.experimental.stateless_fold_in(seed, index),
    stddev=(2.0 / fans) ** 0.5,
  )


def dense(
  inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None = None
) -> tf.Tensor:
  """Returns inputs @ kernel + bias, `[batch, outputs]`."""
  outputs = tf.matmul(inputs, kernel)
  return outputs if bias is None else outputs + bias


def convolution(
  inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
  """Returns the convolution that keeps height and width (NHWC)."""
  return tf.nn.conv2d(inputs, kernel, strides=1, padding='SAME') + bias


def group_norm(
  inputs: tf.Tensor,
  scale: tf.Tensor,
  offset: tf.Tensor,
  max_groups: int = 8,
  epsilon: float = 1e-5,
) -> tf.Tensor:
  """Returns group normalization over the last axis (Wu and He 2018).

  Mean and variance are taken in float32, whatever the type of the inputs: in
  fewer bits their difference from the inputs would be lost.

  Args:
    inputs: `[batch, ..., channels]`.
    scale: `[channels]`.
    offset: `[channels]`.
    max_groups: Most groups; the largest divisor of `channels` up to it is
      taken.
    epsilon: Added to the variance.
  """
  channels = inputs.shape[-1]
  groups = max(g for g in range(1, max_groups + 1) if channels % g == 0)
  spatial = inputs.shape[1:-1]
  grouped = tf.reshape(
    tf.cast(inputs, tf.float32), [-1, *spatial, groups, channels // groups]
  )
  axes = [*range(1, 1 + len(spatial)), -1]
  mean, variance = tf.nn.moments(grouped, axes, keepdims=True)
  normalized = (grouped - mean) * tf.math.rsqrt(variance + epsilon)
  normalized = tf.reshape(normalized, [-1, *spatial, channels])
  return tf.cast(normalized, inputs.dtype) * scale + offset
