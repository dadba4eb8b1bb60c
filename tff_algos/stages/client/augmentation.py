"""Random changes of training images, drawn in the graph.

An image is changed afresh in every epoch. The draws depend on the client's
seed (of run, phase, round and client), the epoch and the image's row among the
client's examples, so that padding, batches, blocks of clients and runtimes
change none.
"""

from collections.abc import Callable

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.numerics import index_random

# (images [batch, height, width, channels], seed int32 [2], epoch int32 [],
#  rows int32 [batch]) -> images, as many.
Augmentation = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

_PADDING = 4
# Before the counters of an image, so that no draw is one of a shuffle.
_PURPOSE = 0x6175676D


def crop_and_flip(
  images: tf.Tensor, seed: tf.Tensor, epoch: tf.Tensor, rows: tf.Tensor
) -> tf.Tensor:
  """Shifts each image by up to 4 pixels, and flips half of them, at random.

  The same as padding with 4 zeros, cropping at random to the old size and
  flipping left and right with chance 1/2: the usual augmentation of CIFAR-10
  (He et al. 2016, section 4.2), which FedSoft's experiments call standard.

  Args:
    images: `[batch, height, width, channels]`, height and width static.
    seed: int32 `[2]`.
    epoch: int32 `[]`.
    rows: Which of the client's examples these are, int32 `[batch]`.

  Returns:
    Images of the same shape; every pixel is one of the image, or 0.

  Raises:
    ConfigError: If the examples are no images.
  """
  if images.shape.rank != 4:
    raise errors.ConfigError(
      "augmentation 'crop_and_flip' needs images [height, width, channels], "
      f"got examples of shape {tuple(images.shape[1:])}; set it to 'none'"
    )
  height, width, channels = images.shape[1:]

  def draw(number, limit):
    return index_random.random_below(
      limit, seed, tf.constant(_PURPOSE), epoch, rows, tf.constant(number)
    )[:, tf.newaxis]

  down, right = (draw(i, 2 * _PADDING + 1) - _PADDING for i in range(2))
  y = tf.range(height) + down
  x = tf.range(width)
  x = tf.where(draw(2, 2) > 0, width - 1 - x, x) + right  # pyright: ignore[reportOptionalOperand]
  y, x = y[:, :, tf.newaxis], x[:, tf.newaxis, :]
  is_inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)  # pyright: ignore[reportOperatorIssue]
  first = tf.range(tf.shape(images)[0])[:, tf.newaxis, tf.newaxis] * height
  pixels = tf.gather(
    tf.reshape(images, [-1, channels]),
    tf.where(is_inside, (first + y) * width + x, 0),
  )
  return tf.where(is_inside[..., tf.newaxis], pixels, tf.zeros_like(pixels))


AUGMENTATIONS: dict[str, Augmentation | None] = {
  'none': None,
  'crop_and_flip': crop_and_flip,
}
