"""The networks of the workloads in JAX; for contenders and packed cases.

Names of weights are those of `tff_algos.models`; so are strides and padding.
Imports jax only, as it is packed.
"""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

Weights = Mapping[str, jax.Array]
# (images, kernel) -> a convolution.
Convolve = Callable[[jax.Array, jax.Array], jax.Array]


def convolve(
  x: jax.Array, kernel: jax.Array, padding: str = 'SAME'
) -> jax.Array:
  """Returns XLA's convolution."""
  return jax.lax.conv_general_dilated(
    x,
    kernel,
    window_strides=(1, 1),
    padding=padding,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
  )


def convolve_by_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
  """Returns the same as the product of all patches and the kernel."""
  height, width = x.shape[1:3]
  rows, columns = kernel.shape[:2]
  margins = ((rows // 2, rows // 2), (columns // 2, columns // 2))
  padded = jnp.pad(x, ((0, 0), *margins, (0, 0)))
  patches = [
    padded[:, i : i + height, j : j + width]
    for i in range(rows)
    for j in range(columns)
  ]
  flat_kernel = kernel.reshape(-1, kernel.shape[-1])
  return jnp.concatenate(patches, -1) @ flat_kernel


def logits(
  model: str, weights: Weights, x: jax.Array, convolve: Convolve = convolve
) -> jax.Array:
  """Returns the logits `[batch, num_classes]` of one model.

  Args:
    model: `'linear'`, `'mlp'`, `'cnn'` or `'lenet'`.
    weights: name -> weights.
    x: float32 `[batch, height, width, channels]`.
    convolve: How the CNN does it; LeNet, which does not pad, by `padding`.
  """
  if model == 'linear':
    return _flat(x) @ weights['kernel'] + weights['bias']
  if model == 'lenet':
    convolve = functools.partial(convolve, padding='VALID')
  for i in range(0 if model == 'mlp' else 2):
    x = convolve(x, weights[f'conv_{i}/kernel']) + weights[f'conv_{i}/bias']
    x = _pool(jax.nn.relu(x))
  x = _flat(x)
  last = 2 if model == 'lenet' else 1
  for i in range(last):
    x = jax.nn.relu(_dense(weights, i, x))
  return _dense(weights, last, x)


def example_losses(logits: jax.Array, y: jax.Array) -> jax.Array:
  """Returns the cross-entropy of each example."""
  chosen = jnp.take_along_axis(logits, y[:, jnp.newaxis], 1)[:, 0]
  return jax.nn.logsumexp(logits, 1) - chosen


def _flat(x: jax.Array) -> jax.Array:
  return x.reshape(x.shape[0], -1)


def _dense(weights: Weights, i: int, x: jax.Array) -> jax.Array:
  return x @ weights[f'dense_{i}/kernel'] + weights[f'dense_{i}/bias']


def _pool(x: jax.Array) -> jax.Array:
  """Returns the maxima of windows of 2 x 2."""
  batch, height, width, channels = x.shape
  windows = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
  # A maximum over axes has a much faster gradient than `reduce_window`.
  return windows.max((2, 4))
