"""Mixed precision: float32 weights, model arithmetic in bfloat16."""

import dataclasses

import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.core import model as model_lib

COMPUTE_DTYPES = ('float32', 'bfloat16')

# Allows for eight roundings to 8 significant bits.
OUTPUT_TOLERANCE = 2.0**-5


def check_dtype(compute_dtype: str) -> None:
  """Raises ConfigError unless a model can compute in the type."""
  if compute_dtype == 'float16':
    raise errors.ConfigError(
      "compute_dtype 'float16' is refused: gradients below 6e-8 become 0 in "
      'it and values above 65504 infinite, so it needs a loss scale, which '
      "the local training does not have. Use 'bfloat16', which has the range "
      'of float32'
    )
  checks.check_one_of('compute_dtype', compute_dtype, COMPUTE_DTYPES)


def compute_in(model: model_lib.Model, compute_dtype: str) -> model_lib.Model:
  """Returns the model with the arithmetic of its `apply` in another type.

  Weights and examples are rounded on entry and outputs cast back to float32,
  so gradients, optimizers, losses, aggregation, checkpoints and exports stay
  float32: the master weights of Micikevicius et al. (2018), arXiv:1710.03740,
  without a loss scale, which bfloat16 does not need.

  Args:
    model: Computes in the type of its weights.
    compute_dtype: One of `COMPUTE_DTYPES`; `'float32'` returns `model` itself.
  """
  if compute_dtype == 'float32':
    return model
  dtype = tf.as_dtype(compute_dtype)

  def apply(weights, x):
    rounded = tf.nest.map_structure(lambda leaf: tf.cast(leaf, dtype), weights)
    x = tf.convert_to_tensor(x)
    if x.dtype.is_floating:  # Ids of tokens stay integers.
      x = tf.cast(x, dtype)
    return tf.cast(model.apply(rounded, x), tf.float32)

  return dataclasses.replace(
    model, apply=apply, output_tolerance=OUTPUT_TOLERANCE
  )
