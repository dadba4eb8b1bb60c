"""Teaches `tf.vectorized_map` operations that it would loop over."""

import tensorflow as tf
from tensorflow.python.ops.parallel_for.pfor import RegisterPFor, wrap


@RegisterPFor('TopKV2')
def _convert_top_k(pfor_input):
  """Top-k works on the last axis, so a stack of inputs needs no loop.

  `tf.argsort` is built on it. TensorFlow 2.14 has no converter of its own.
  """
  values, indices = tf.raw_ops.TopKV2(
    input=pfor_input.stacked_input(0),
    k=pfor_input.unstacked_input(1),
    sorted=pfor_input.get_attr('sorted'),
  )
  return [wrap(values, True), wrap(indices, True)]


def map_stacked(function, stacked):
  """Returns `function` of every row of a stack, in one batched pass.

  Args:
    function: Pure function of one row's structure.
    stacked: Structure of tensors `[rows, ...]`.

  Returns:
    Structure of tensors `[rows, ...]`.
  """
  return tf.vectorized_map(function, stacked)
