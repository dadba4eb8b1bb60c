"""The convolutional networks of the packed cases by hand in jax.

Names of weights are those of `tff_algos.models`; so are strides, padding and
groups. jax and the neighbours that are packed with this file only.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from benchmarks.contenders import jax_models

Weights = Mapping[str, jax.Array]

# Channels, stride and groups of ResNet-18's stages of two blocks.
_RESNET = ((64, 1, 8), (128, 2, 8), (256, 2, 16), (512, 2, 32))
# Expansion, channels, blocks and stride of MobileNet-v2's stages.
_MOBILENET = (
  *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
  *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def logits(model: str, weights: Weights, x: jax.Array) -> jax.Array:
  """Returns the logits `[batch, num_classes]` of one model.

  Args:
    model: Of `workload.Workload`.
    weights: name -> weights; a kernel may be `atoms` and `coefficients`.
    x: float32 `[batch, ...]`.
  """
  weights = {
    **weights,
    **{
      name.replace('/atoms', '/kernel'): jnp.tensordot(
        atoms, weights[name.replace('/atoms', '/coefficients')], 1
      )
      for name, atoms in weights.items()
      if name.endswith('/atoms')
    },
  }
  own = {'lenet': _lenet, 'resnet18': _resnet18, 'mobilenet_v2': _mobilenet}
  if model in own:
    return own[model](weights, x)
  return jax_models.logits(model, weights, x)


def _lenet(weights: Weights, x: jax.Array) -> jax.Array:
  for i in range(2):
    x = _convolve(x, weights[f'conv_{i}/kernel'], 1, 'VALID')
    x = jax.nn.relu(x + weights[f'conv_{i}/bias'])
    x = jax_models.pool(x)
  x = x.reshape(x.shape[0], -1)
  for i in range(3):
    x = x @ weights[f'dense_{i}/kernel'] + weights[f'dense_{i}/bias']
    x = jax.nn.relu(x) if i < 2 else x
  return x


def _resnet18(weights: Weights, x: jax.Array) -> jax.Array:
  x = jax.nn.relu(_normed(weights, 'stem', x, border=1))
  for i, (_, stage_stride, groups) in enumerate(_RESNET):
    for j in range(2):
      name, stride = f'stage_{i}/block_{j}', 1 if j else stage_stride
      hidden = _normed(weights, f'{name}/0', x, stride, 1, groups)
      hidden = jax.nn.relu(hidden)
      hidden = _normed(weights, f'{name}/1', hidden, groups=groups)
      if f'{name}/shortcut/kernel' in weights:
        x = _normed(weights, f'{name}/shortcut', x, stride, groups=groups)
      x = jax.nn.relu(hidden + x)
  return _head(weights, x)


def _mobilenet(weights: Weights, x: jax.Array) -> jax.Array:
  x = jax.nn.relu6(_normed(weights, 'stem', x, 2))
  number = 0
  for expansion, channels, num_blocks, stage_stride in _MOBILENET:
    for j in range(num_blocks):
      name, stride = f'block_{number}', 1 if j else stage_stride
      hidden = x
      if expansion > 1:
        hidden = jax.nn.relu6(_normed(weights, f'{name}/expand', x))
      hidden = _normed(
        weights, f'{name}/filter', hidden, stride, is_depthwise=True
      )
      hidden = _normed(weights, f'{name}/project', jax.nn.relu6(hidden))
      is_residual = (x.shape[-1], stride) == (channels, 1)
      x = x + hidden if is_residual else hidden
      number += 1
  return _head(weights, jax.nn.relu6(_normed(weights, 'features', x)))


def _head(weights: Weights, x: jax.Array) -> jax.Array:
  return x.mean((1, 2)) @ weights['head/kernel'] + weights['head/bias']


def _normed(
  weights: Weights,
  layer: str,
  x: jax.Array,
  stride: int = 1,
  border: int | None = None,
  groups: int = 8,
  is_depthwise: bool = False,
) -> jax.Array:
  """Returns a convolution with group normalization."""
  kernel = weights[f'{layer}/kernel']
  padding = 'SAME' if border is None else [(border, border)] * 2
  if is_depthwise:
    x = _convolve(x, kernel, stride, padding, x.shape[-1])
  else:
    x = _convolve(x, kernel, stride, padding)
  channels = x.shape[-1]
  groups = max(g for g in range(1, groups + 1) if channels % g == 0)
  grouped = x.reshape(*x.shape[:3], groups, channels // groups)
  mean = grouped.mean((1, 2, 4), keepdims=True)
  variance = grouped.var((1, 2, 4), keepdims=True)
  normed = (grouped - mean) * jax.lax.rsqrt(variance + 1e-5)
  return (
    normed.reshape(x.shape) * weights[f'{layer}/scale']
    + weights[f'{layer}/offset']
  )


def _convolve(
  x: jax.Array,
  kernel: jax.Array,
  stride: int,
  padding: str | list[tuple[int, int]],
  groups: int = 1,
) -> jax.Array:
  return jax.lax.conv_general_dilated(
    x,
    kernel,
    window_strides=(stride, stride),
    padding=padding,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    feature_group_count=groups,
  )
