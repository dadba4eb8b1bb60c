"""The networks of the packed cases by hand in jax.

Names of weights are those of `tff_algos.models`; so are strides and padding.
jax and the neighbours that are packed with this file only.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from benchmarks.contenders import jax_models

Weights = Mapping[str, jax.Array]


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
  if model == 'lenet':
    return _lenet(weights, x)
  return jax_models.logits(model, weights, x)


def _lenet(weights: Weights, x: jax.Array) -> jax.Array:
  for i in range(2):
    x = jax.lax.conv_general_dilated(
      x,
      weights[f'conv_{i}/kernel'],
      window_strides=(1, 1),
      padding='VALID',
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    )
    x = jax.nn.relu(x + weights[f'conv_{i}/bias'])
    x = jax_models.pool(x)
  x = x.reshape(x.shape[0], -1)
  for i in range(3):
    x = x @ weights[f'dense_{i}/kernel'] + weights[f'dense_{i}/bias']
    x = jax.nn.relu(x) if i < 2 else x
  return x
