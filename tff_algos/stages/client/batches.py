"""Batches for a given number of steps, over as many epochs as they need."""

import tensorflow as tf

from tff_algos.numerics import index_random


def draw_batches(
  seed: tf.Tensor, mask: tf.Tensor, num_batches: int, batch_size: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns which rows each batch reads.

  The examples are gone through in a fresh order in every epoch, as in local
  training by epochs; the last batch of an epoch may be short, so a client with
  fewer examples than `batch_size` has them all in every batch.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for real rows, which come first; at least one row.
    num_batches: >= 1.
    batch_size: >= 1.

  Returns:
    Row positions int32 `[num_batches, batch_size]` and their mask, float32. A
    masked slot reads a real row, if there is one.
  """
  capacity = tf.shape(mask)[0]
  size = tf.cast(tf.reduce_sum(mask), tf.int32)
  batches_per_epoch = tf.maximum((size + batch_size - 1) // batch_size, 1)
  steps = tf.range(num_batches)[:, tf.newaxis]
  epochs = steps // batches_per_epoch
  slots = steps % batches_per_epoch * batch_size + tf.range(batch_size)
  is_real = slots < size
  slots = tf.where(is_real, slots, tf.zeros_like(slots))
  # Whoever needs a second epoch has few examples: only then are orders of
  # several epochs needed, and only of the first rows.
  most = num_batches * batch_size
  some = index_random.shuffled_epochs(seed, mask[:most], num_batches)
  first = index_random.shuffled_epochs(seed, mask, 1)
  num_rows = tf.minimum(capacity, most)
  positions = tf.where(
    size <= most,
    _take(some, epochs * num_rows + tf.minimum(slots, num_rows - 1)),
    _take(first, slots),
  )
  return positions, tf.cast(is_real, tf.float32)


def _take(orders, places):
  return tf.gather(tf.reshape(orders, [-1]), places)
