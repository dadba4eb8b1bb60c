"""Consensus mean and distance of client models (no server)."""

import tensorflow as tf

from tff_algos.core.structures import Structure
from tff_algos.numerics import trees


def shares(num_examples: tf.Tensor) -> tf.Tensor:
  """Returns each client's share of all examples, float32 `[clients]`.

  Args:
    num_examples: float32 `[clients]`, >= 0; equal shares if all are 0.
  """
  counts = tf.where(
    tf.reduce_sum(num_examples) > 0, num_examples, tf.ones_like(num_examples)
  )
  return counts / tf.reduce_sum(counts)


def consensus(
  models: Structure, num_examples: tf.Tensor
) -> tuple[Structure, tf.Tensor]:
  """Returns the mean of all clients' models and their consensus distance.

  Args:
    models: Structure of float32 tensors `[clients, ...]`.
    num_examples: float32 `[clients]`, weights of the models, see `shares`.

  Returns:
    The mean `[...]`, and the root mean squared distance to it, float32 `[]`,
    which is 0 if all models are equal.
  """
  weights = shares(num_examples)
  mean = trees.mix(weights, models)
  squared = trees.squared_row_norms(
    trees.subtract(models, mean), tf.size(weights)
  )
  return mean, tf.sqrt(tf.tensordot(weights, squared, axes=1))


def move(
  own: Structure, others: Structure, share_of_others: tf.Tensor
) -> Structure:
  """Returns own + share_of_others * (others - own); `own` itself for share 0.

  Args:
    own: A model.
    others: The weighted mean of other clients' models, finite.
    share_of_others: Weight of `others` in the mean with `own`; float32 `[]`, or
      of a shape that broadcasts to all leaves.
  """
  offset = trees.subtract(others, own)
  return trees.add(own, trees.scale(offset, share_of_others))
