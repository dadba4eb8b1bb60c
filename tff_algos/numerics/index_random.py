"""Counter-based random numbers: functions of (seed, counters) alone.

TensorFlow's generators fill a whole tensor, so what lands at position i
depends on the tensor's size and, in principle, on the device. Here entry i is
a hash of the seed and of i: padding, batching over clients and the choice of
a device change no draw. The hash is three rounds of multiply and xor-shift
on 32 bits (the form of MurmurHash3's finaliser); it is for shuffling and
sampling, not for cryptography.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_MULTIPLIERS = (0x7FEB352D, 0x31848BAB, 0x2C1B3C6D)
_SHIFTS = (16, 15, 17)


class _Arithmetic(NamedTuple):
  """Arithmetic on 32 bits, in a graph or in NumPy.

  Attributes:
    cast: Integer or integers -> unsigned 32 bits.
    right_shift: (bits, number of places) -> shifted bits.
  """

  cast: Callable[[Any], Any]
  right_shift: Callable[[Any, Any], Any]

  def mix(self, bits: Any) -> Any:
    """Returns the mixed bits."""
    for multiplier, shift in zip(_MULTIPLIERS, _SHIFTS, strict=True):
      bits = self.shift_xor(bits, shift) * self.cast(multiplier)
    return self.shift_xor(bits, 16)

  def shift_xor(self, bits: Any, shift: int) -> Any:
    """Returns the bits xor the shifted bits."""
    return bits ^ self.right_shift(bits, self.cast(shift))

  def random_bits(self, first: Any, second: Any, counters: Any) -> Any:
    """Returns the hash of both numbers of a seed and of counters."""
    bits = self.mix(self.mix(first) ^ second)
    for counter in counters:
      # Adding an odd constant keeps counter 0 from being a fixed point.
      step = self.cast(counter) * self.cast(0x1E3779B1) + self.cast(0x5BF03635)
      bits = self.mix(bits ^ step)
    return bits


def _to_uint32(value: tf.Tensor | int) -> tf.Tensor:
  if isinstance(value, int):
    return tf.constant(value, tf.uint32)
  return tf.cast(value, tf.uint32)


_GRAPH = _Arithmetic(_to_uint32, tf.bitwise.right_shift)
_NUMPY = _Arithmetic(
  lambda value: np.asarray(value).astype(np.uint32), np.right_shift
)


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
  """Returns the seed derived from a seed and a number, int32 `[2]`.

  It has 32 bits of the seed: `derive_secret` for what must not be guessed.

  Args:
    seed: int32 `[2]`.
    number: Which of the derived seeds, int32 `[]`.
  """
  # The stubs take the result of this function for an int.
  folded: Any = tf.random.fold_in(seed, number)  # pyright: ignore[reportArgumentType]
  return folded


def derive_secret(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
  """Returns another seed than `fold_in`, with all 64 bits of the seed."""
  numbered = tf.bitwise.bitwise_xor(seed, tf.stack([0, number]))
  return tf.random.split(numbered, 1)[0]


def random_bits(seed: tf.Tensor, *counters: tf.Tensor | int) -> tf.Tensor:
  """Returns 32 random bits for each combination of counters.

  Args:
    seed: int32 `[2]`.
    *counters: Integers or integer tensors that broadcast against each other,
      from 0 to 2**32 - 1.

  Returns:
    uint32 of the broadcast shape, uniform.
  """
  if tf.executing_eagerly():
    # NumPy starts some seventy small operations in a tenth of the time.
    first, second = _NUMPY.cast(seed)
    with np.errstate(over='ignore'):
      return tf.constant(_NUMPY.random_bits(first, second, counters))
  first, second = tf.unstack(_GRAPH.cast(seed), num=2)
  return _GRAPH.random_bits(first, second, counters)


def random_below(
  limit: int, seed: tf.Tensor, *counters: tf.Tensor
) -> tf.Tensor:
  """Returns a random number from 0 to limit - 1 for each combination.

  Args:
    limit: From 1 to 2**15. Chances differ by at most limit / 2**16 of each.
    seed: int32 `[2]`.
    *counters: As of `random_bits`.

  Returns:
    int32 of the broadcast shape.
  """
  high = tf.bitwise.right_shift(
    random_bits(seed, *counters), tf.constant(16, tf.uint32)
  )
  return tf.bitwise.right_shift(tf.cast(high, tf.int32) * limit, 16)


def shuffled_epochs(
  seed: tf.Tensor, mask: tf.Tensor, num_epochs: int
) -> tf.Tensor:
  """Returns a fresh uniform order of the real rows for each epoch.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for a real row and 0 for padding, which comes last.
    num_epochs: How many orders.

  Returns:
    int32 `[num_epochs, capacity]`: the real rows shuffled, then the padding.
    The real part does not depend on the capacity.
  """
  capacity = tf.shape(mask)[0]
  epochs = tf.range(num_epochs)[:, tf.newaxis]
  bits = random_bits(seed, epochs, tf.range(capacity))
  # Small bits become large signed numbers, which top-k returns first, and equal
  # ones by position; padding gets the smallest key, so it comes last.
  keys = tf.cast(
    tf.bitwise.bitwise_xor(bits, tf.constant(0x7FFFFFFF, tf.uint32)), tf.int32
  )
  keys = tf.where(mask > 0, keys, tf.int32.min)
  return tf.math.top_k(keys, capacity).indices
