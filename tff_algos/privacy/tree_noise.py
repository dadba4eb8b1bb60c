"""Noise of tree aggregation, for clients that take part in a fixed order.

The steps of an epoch are the leaves of a binary tree whose nodes have
independent noise. The sum of the first t steps has the noise N(t) of the nodes
that t's binary digits name: one of 2^k steps for each digit k that is 1. So a
sum of T steps has the noise of at most log2(T) + 1 nodes, and a client that
takes part once is in as many (Kairouz, McMahan, Song, Thakkar, Thakurta and Xu,
"Practical and Private (Deep) Learning without Sampling or Shuffling" (ICML
2021), arXiv:2103.00039, Section 2 and Appendix B).

A node's noise is a function of its place, so nothing but the step is stored.
"""

import tensorflow as tf

from tff_algos.numerics import index_random


def draw(
  seed: tf.Tensor, step: tf.Tensor, epoch_steps: int, size: int
) -> tf.Tensor:
  """Returns the noise that a step adds to the sum: N(t) - N(t - 1).

  Args:
    seed: Seed of all epochs, int32 `[2]`.
    step: Steps before this one, over all epochs, int32 `[]`.
    epoch_steps: Steps of an epoch, >= 1; each epoch has its own tree.
    size: Number of entries of the sum.

  Returns:
    float32 `[size]`; every node has deviation 1.
  """
  epoch_seed = index_random.derive_secret(seed, step // epoch_steps)
  num_summed = tf.math.floormod(step, epoch_steps) + 1
  levels = tf.range(epoch_steps.bit_length())
  digits = tf.bitwise.bitwise_and(tf.bitwise.right_shift(num_summed, levels), 1)
  top = tf.argmax(digits, output_type=tf.int32)  # The lowest digit that is 1.

  def node(level: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """Returns the noise of the node of 2^level steps that ends with a step."""
    place = index_random.derive_secret(epoch_seed, level)
    place = index_random.derive_secret(
      place, tf.bitwise.right_shift(last, level)
    )
    return tf.random.stateless_normal([size], place)

  # The digits below that one are 0 here, and 1 in the number before.
  _, noise = tf.while_loop(
    lambda level, _: level < top,
    lambda level, noise: (level + 1, noise - node(level, num_summed - 1)),
    (tf.constant(0), node(top, num_summed)),
  )
  return noise
