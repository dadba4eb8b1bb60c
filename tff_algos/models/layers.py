"""Layers as pure functions of (weights, inputs), and their initial values."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.numerics import index_random

NORMALIZATIONS = ('none', 'group')
_EPSILON = 1e-5  # Added to the variance.


def check_normalization(
  name: str, allowed: Sequence[str] = NORMALIZATIONS
) -> str:
  """Raises ConfigError unless `name` is one of the allowed normalizations."""
  if name in ('batch', 'batch_norm', 'batchnorm'):
    raise errors.ConfigError(
      f"normalization {name!r} is refused: batch normalization's moving "
      'statistics must not be averaged over clients or clusters or pulled by a '
      'proximal term like weights, and small non-IID batches make '
      "them differ between clients. Use 'group', which keeps no statistics"
    )
  return checks.check_one_of('normalization', name, allowed)


def check_images(name: str, input_shape: tuple[int, ...]) -> None:
  """Raises ConfigError unless an input is `[height, width, channels]`."""
  if len(input_shape) != 3:
    raise errors.ConfigError(
      f'{name} takes images [height, width, channels], got shape {input_shape}'
    )


def check_sequence(name: str, input_shape: tuple[int, ...]) -> None:
  """Raises ConfigError unless an input is `[places]`."""
  if len(input_shape) != 1:
    raise errors.ConfigError(
      f'{name} takes sequences of ids [places], got shape {input_shape}'
    )


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
    index_random.fold_in(seed, index),
    stddev=(2.0 / fans) ** 0.5,
  )


def he_normal(seed: tf.Tensor, index: int, shape: Sequence[int]) -> tf.Tensor:
  """Returns a kernel of variance 2 / fan_in (He et al. 2015).

  Args:
    seed: int32 `[2]` of the whole model.
    index: Number of the layer, so that layers differ.
    shape: `[height, width, inputs, outputs]`, of inputs that a filter sees.
  """
  return tf.random.stateless_normal(
    shape,
    index_random.fold_in(seed, index),
    stddev=(2.0 / (shape[0] * shape[1] * shape[2])) ** 0.5,
  )


def dense(
  inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None = None
) -> tf.Tensor:
  """Returns inputs @ kernel + bias, `[batch, ..., outputs]`."""
  outputs = tf.matmul(inputs, kernel)
  return outputs if bias is None else outputs + bias


def dense_weights(
  seed: tf.Tensor, index: int, name: str, inputs: int, outputs: int
) -> dict[str, tf.Tensor]:
  """Returns a layer's initial weights: `<name>/kernel` and `<name>/bias`.

  The kernel is Xavier-normal, the bias 0.

  Args:
    seed: int32 `[2]` of the whole model.
    index: Number of the layer, so that layers differ.
    name: Of the layer.
    inputs: Number of inputs.
    outputs: Number of outputs.
  """
  return {
    f'{name}/kernel': xavier_normal(seed, index, [inputs, outputs]),
    f'{name}/bias': tf.zeros([outputs]),
  }


def apply_dense(
  weights: Mapping[str, tf.Tensor], name: str, inputs: tf.Tensor
) -> tf.Tensor:
  """Returns `dense` with the weights `<name>/kernel` and `<name>/bias`."""
  return dense(inputs, weights[f'{name}/kernel'], weights[f'{name}/bias'])


def embed(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
  """Returns the rows of a table by their ids, `[*ids.shape, width]`.

  Args:
    table: `[num_ids, width]`.
    ids: Integers of any shape, each below num_ids.
  """
  # The reshape makes the gradient dense: neither optimizers nor averages over
  # clients take tf.IndexedSlices.
  return tf.gather(tf.reshape(table, table.shape), ids)


def group_norm(
  inputs: tf.Tensor,
  scale: tf.Tensor,
  offset: tf.Tensor,
  max_groups: int = 8,
) -> tf.Tensor:
  """Returns group normalization over the last axis (Wu and He 2018).

  Mean and variance are computed in float32 for any type of the inputs, as lower
  precision would lose the difference between inputs and mean.

  Args:
    inputs: `[batch, ..., channels]`.
    scale: `[channels]`.
    offset: `[channels]`.
    max_groups: Most groups; the largest divisor of `channels` up to it is
      taken.
  """
  channels = int(inputs.shape[-1] or 0)
  groups = max(g for g in range(1, max_groups + 1) if channels % g == 0)
  spatial = inputs.shape[1:-1]
  grouped = tf.reshape(
    tf.cast(inputs, tf.float32), [-1, *spatial, groups, channels // groups]
  )
  axes = [*range(1, 1 + len(spatial)), -1]
  mean, variance = tf.nn.moments(grouped, axes, keepdims=True)
  normalized = (grouped - mean) * tf.math.rsqrt(variance + _EPSILON)
  normalized = tf.reshape(normalized, [-1, *spatial, channels])
  return tf.cast(normalized, inputs.dtype) * scale + offset


def layer_norm(
  inputs: tf.Tensor,
  scale: tf.Tensor,
  offset: tf.Tensor,
) -> tf.Tensor:
  """Returns layer normalization of each position (Ba et al. 2016).

  Mean and variance are computed in float32, as by `group_norm`.

  Args:
    inputs: `[..., channels]`; each vector of channels is normalized by itself.
    scale: `[channels]`.
    offset: `[channels]`.
  """
  values = tf.cast(inputs, tf.float32)
  mean, variance = tf.nn.moments(values, [-1], keepdims=True)
  normalized = (values - mean) * tf.math.rsqrt(variance + _EPSILON)
  return tf.cast(normalized, inputs.dtype) * scale + offset
