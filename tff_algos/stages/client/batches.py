"""Batch schedules: rows of a client's examples read by each local step.

An epoch is a new uniform order of a client's examples, cut into batches; the
last batch of an epoch may be short. Orders depend on (seed, epoch, row) and not
on the capacity, so padding changes no batch.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.numerics import index_random, unit_dropout


class Batches(NamedTuple):
  """The batches of consecutive steps.

  Attributes:
    positions: Rows read by each step, int32 `[num_steps, batch_size]`. A masked
      slot reads a real row, if there is one.
    masks: 1 for a slot that counts, float32 `[num_steps, batch_size]`. Steps
      with an all-zero mask are padding and must change nothing.
    epochs: The epoch of each step, from 0, int32 `[num_steps]`.
  """

  positions: tf.Tensor
  masks: tf.Tensor
  epochs: tf.Tensor

  def read(
    self, data: algorithm.ClientData, step: tf.Tensor | int, seed: tf.Tensor
  ) -> tuple[algorithm.ClientData, unit_dropout.Draws]:
    """Returns the batch of a step, and the random draws of its dropout.

    Args:
      data: The client's examples.
      step: From 0, int32 `[]`.
      seed: int32 `[2]`, that of the batches.
    """
    rows, mask, epoch = (tf.gather(part, step) for part in self)
    return data.take(rows, mask), unit_dropout.Draws(seed, epoch, rows)


def draw_epochs(
  seed: tf.Tensor, mask: tf.Tensor, num_epochs: int, batch_size: int
) -> Batches:
  """Returns the batches of whole epochs.

  Every epoch has as many steps as the capacity needs; steps beyond the real
  rows are padding.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for real rows.
    num_epochs: >= 1.
    batch_size: >= 1.
  """
  capacity = tf.shape(mask)[0]
  num_batches = (capacity + batch_size - 1) // batch_size
  orders = index_random.shuffled_epochs(seed, mask, num_epochs)
  short = num_batches * batch_size - capacity
  orders = tf.pad(orders, tf.stack([[0, 0], [0, short]]))
  in_range = tf.cast(tf.range(capacity + short) < capacity, tf.float32)
  step_mask = tf.gather(mask, orders) * in_range
  # Padding rows are never read: even 0 * NaN would be NaN.
  orders = tf.where(step_mask > 0, orders, orders[:, :1])
  shape = [num_epochs * num_batches, batch_size]
  return Batches(
    tf.reshape(orders, shape),
    tf.reshape(step_mask, shape),
    tf.range(num_epochs * num_batches) // num_batches,
  )


def draw_steps(
  seed: tf.Tensor, mask: tf.Tensor, num_steps: int, batch_size: int
) -> Batches:
  """Returns `num_steps` batches, over as many epochs as needed.

  There is no padding between epochs. A client with fewer examples than
  `batch_size` has them all in every batch; with capacity 0 there is no step.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for real rows, which come first.
    num_steps: >= 1.
    batch_size: >= 1.
  """
  capacity = tf.shape(mask)[0]
  size = tf.cast(tf.reduce_sum(mask), tf.int32)
  batches_per_epoch = tf.maximum((size + batch_size - 1) // batch_size, 1)
  steps = tf.range(num_steps * tf.minimum(capacity, 1))
  epochs = steps // batches_per_epoch
  begins = steps % batches_per_epoch * batch_size
  slots = begins[:, tf.newaxis] + tf.range(batch_size)
  is_real = slots < size
  slots = tf.where(is_real, slots, 0)
  # Several epochs are needed only by clients with few examples, so the orders
  # of later epochs cover the first rows alone.
  most = num_steps * batch_size
  some = index_random.shuffled_epochs(seed, mask[:most], num_steps)
  first = index_random.shuffled_epochs(seed, mask, 1)
  num_rows = tf.minimum(capacity, most)
  begins_of_orders = epochs[:, tf.newaxis] * num_rows
  positions = tf.where(
    size <= most,
    _take(some, begins_of_orders + tf.minimum(slots, num_rows - 1)),
    _take(first, slots),
  )
  return Batches(positions, tf.cast(is_real, tf.float32), epochs)


def draw_independent(
  seed: tf.Tensor, mask: tf.Tensor, num_batches: int, batch_size: int
) -> Batches:
  """Returns batches drawn without replacement, each from all examples.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for real rows; at least one row.
    num_batches: >= 1.
    batch_size: >= 1; a client with fewer examples has them all in every batch.
  """
  # The first batch of each of `num_batches` epochs.
  drawn = draw_epochs(seed, mask, num_batches, batch_size)
  batches_per_epoch = tf.shape(drawn.positions)[0] // num_batches
  firsts = tf.range(num_batches) * batches_per_epoch
  return Batches(*(tf.gather(part, firsts) for part in drawn))


def _take(orders, places):
  return tf.gather(tf.reshape(orders, [-1]), places)
