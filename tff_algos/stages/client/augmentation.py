"""Data augmentation of training images, with random draws in the graph.

Each image is augmented anew in every epoch. The draws depend on the client's
seed (of run, phase, round and client), the epoch and the image's row among the
client's examples, and not on padding, batches, blocks of clients or runtimes.
"""

from collections.abc import Callable

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.numerics import index_random

# (images [batch, height, width, channels], seed int32 [2], epoch int32 [],
#  rows int32 [batch]) -> augmented images of the same shape.
Augmentation = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

_PADDING = 4
# Precedes an image's counters, so that draws differ from those of shuffles.
_PURPOSE = 0x6175676D


def crop_and_flip(
  images: tf.Tensor, seed: tf.Tensor, epoch: tf.Tensor, rows: tf.Tensor
) -> tf.Tensor:
  """Randomly crops and flips images: shifts of up to 4 pixels, half flipped.

  Equivalent to padding with 4 zeros, cropping at random to the old size and
  flipping left and right with probability 1/2: the usual augmentation of
  CIFAR-10 (He et al. 2016, section 4.2), called standard in FedSoft's
  experiments.

  Args:
    images: `[batch, height, width, channels]`, height and width static.
    seed: int32 `[2]`.
    epoch: int32 `[]`.
    rows: Row of each image among the client's examples, int32 `[batch]`.

  Returns:
    Images of the same shape; every pixel is one of the image, or 0.

  Raises:
    ConfigError: If the examples are not images.
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
