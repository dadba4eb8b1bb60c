"""Random numbers that depend on (seed, counters) alone.

TensorFlow's generators fill a whole tensor, so what lands at position i
depends on the tensor's size and, in principle, on the device. Here entry i is
a hash of the seed and of i: padding, batching over clients and the choice of
a device change no draw. The hash is three rounds of multiply and xor-shift
on 32 bits (the form of MurmurHash3's finaliser); it is for shuffling and
sampling, not for cryptography.
"""

import tensorflow as tf

_MASK = 0xFFFFFFFF
# Odd constants below 2**31, so that a product of a 32-bit number fits int64.
_MULTIPLIERS = (0x7FEB352D, 0x31848BAB, 0x2C1B3C6D)
_SHIFTS = (16, 15, 17)


def _mix(bits: tf.Tensor) -> tf.Tensor:
  for multiplier, shift in zip(_MULTIPLIERS, _SHIFTS, strict=True):
    bits = tf.bitwise.bitwise_xor(
      bits, tf.bitwise.right_shift(bits, tf.constant(shift, tf.int64))
    )
    bits = tf.bitwise.bitwise_and(
      bits * multiplier, tf.constant(_MASK, tf.int64)
    )
  return tf.bitwise.bitwise_xor(
    bits, tf.bitwise.right_shift(bits, tf.constant(16, tf.int64))
  )


def random_bits(seed: tf.Tensor, *counters: tf.Tensor) -> tf.Tensor:
  """Returns 32 random bits for each combination of counters.

  Args:
    seed: int32 `[2]`.
    *counters: Integer tensors that broadcast against each other, >= 0.

  Returns:
    int64 of the broadcast shape, uniform on 0 ... 2**32 - 1.
  """
  words = tf.bitwise.bitwise_and(
    tf.cast(seed, tf.int64), tf.constant(_MASK, tf.int64)
  )
  bits = _mix(tf.bitwise.bitwise_xor(_mix(words[0]), words[1]))
  for counter in counters:
    # Adding an odd constant keeps counter 0 from being a fixed point.
    step = tf.bitwise.bitwise_and(
      tf.cast(counter, tf.int64) * 0x1E3779B1 + 0x5BF03635,
      tf.constant(_MASK, tf.int64),
    )
    bits = _mix(tf.bitwise.bitwise_xor(bits, step))
  return bits


def shuffled_epochs(
  seed: tf.Tensor, mask: tf.Tensor, num_epochs: int
) -> tf.Tensor:
  """Returns a fresh uniform order of the real rows for each epoch.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for a real row and 0 for padding.
    num_epochs: How many orders.

  Returns:
    int32 `[num_epochs, capacity]`: the real rows shuffled, then the padding.
    The real part does not depend on the capacity.
  """
  positions = tf.range(tf.shape(mask)[0], dtype=tf.int64)
  epochs = tf.range(num_epochs, dtype=tf.int64)[:, tf.newaxis]
  keys = random_bits(seed, epochs, positions)
  # Padding sorts behind every 32-bit key; ties go to the lower position.
  keys = tf.where(mask > 0, keys, tf.constant(1 << 32, tf.int64) + positions)
  return tf.argsort(keys, axis=-1, stable=True)
