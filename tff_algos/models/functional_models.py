"""TFF's functional models (`tff.learning.models.FunctionalModel`) as ours."""

from collections import OrderedDict
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import graph_checks
from tff_algos.numerics import unit_dropout

# `tff.learning.models.FunctionalModel`: TFF has no type annotations, and this
# room imports no TFF.
FunctionalModel: TypeAlias = Any


def from_functional(
  functional: FunctionalModel, num_outputs: int
) -> model_lib.Model:
  """Returns the model that predicts as TFF's functional model does.

  Weights are named `weight_0`, `weight_1`, ... in the order of the trainable
  ones. Their initial values are those of the functional model, whatever the
  seed. Its loss and its metrics are not used: those of classification or
  regression apply (`core.model`).

  Args:
    functional: A `tff.learning.models.FunctionalModel` that takes one tensor of
      features; has no other than trainable weights.
    num_outputs: Classes, or 1 for regression.

  Raises:
    ConfigError: If the model has state, other inputs or outputs, or was made
      from a Keras model.
  """
  trainable, others = functional.initial_weights
  if tf.nest.flatten(others):
    raise errors.ConfigError(
      f'the functional model has {len(tf.nest.flatten(others))} weights that '
      'are not trainable: state across batches must not be averaged over '
      'clients or clusters. Replace batch normalization by group normalization'
    )
  x_spec = functional.input_spec[0]
  if not isinstance(x_spec, tf.TensorSpec):
    raise errors.ConfigError(
      f'the functional model must take one tensor of features, got {x_spec}; '
      'concatenate its inputs, and split them in predict_on_batch_fn'
    )
  shape = x_spec.shape[1:]
  if not shape.is_fully_defined() or x_spec.dtype not in (tf.float32, tf.int32):
    raise errors.ConfigError(
      'the functional model must take float32 or int32 features [batch, ...] '
      f'of known shape, got {x_spec}'
    )
  leaves = [np.asarray(leaf, np.float32) for leaf in tf.nest.flatten(trainable)]
  names = [f'weight_{i}' for i in range(len(leaves))]

  def initialize(seed):
    del seed
    return OrderedDict(zip(names, map(tf.constant, leaves), strict=True))

  def apply(weights, x):
    # The reshape makes gradients dense, as in `layers.embed`.
    given = [tf.reshape(weights[name], weights[name].shape) for name in names]
    try:
      outputs = functional.predict_on_batch(
        (tf.nest.pack_sequence_as(trainable, given), ()),
        x,
        training=unit_dropout.is_in_step(),
      )
    except Exception as error:
      # By name, since this room imports no TFF.
      if type(error).__name__ != 'KerasFunctionalModelError':
        raise
      raise errors.ConfigError(
        'the functional model was made from a Keras model, which TFF lets '
        'nothing but its own computations use; give the function that builds '
        'the Keras model to tff_algos.from_keras'
      ) from error
    # TFF allows a structure whose first tensor is the prediction.
    return tf.cast(tf.nest.flatten(outputs)[0], tf.float32)

  return graph_checks.checked(
    model_lib.Model(
      'functional',
      model_lib.REGRESSION if num_outputs == 1 else model_lib.CLASSIFICATION,
      tuple(size or 0 for size in shape),
      num_outputs,
      initialize,
      apply,
      vectorizes=False,
      input_dtype=x_spec.dtype,
    )
  )
