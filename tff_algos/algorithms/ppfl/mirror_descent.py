"""Mirror descent on the simplex under the negative entropy."""

import tensorflow as tf

# What keeps every coordinate alive: from 0 none would ever come back (Di et
# al., arXiv:2310.14337, Remark 2).
FLOOR = 1e-6


def entropic_step(
  point: tf.Tensor,
  gradient: tf.Tensor,
  learning_rate: tf.Tensor | float,
  floor: float = FLOOR,
) -> tf.Tensor:
  """Returns the minimum of <gradient, u> + KL(u, point) / learning_rate.

  point * exp(-learning_rate * gradient), divided by its sum (Beck and Teboulle
  2003), in logarithms: no gradient is so large that it overflows. Then every
  coordinate is raised to the floor, and the sum is made 1 again.

  Args:
    point: On the simplex, `[..., n]`, each coordinate > 0.
    gradient: `[..., n]`; a NaN makes a NaN.
    learning_rate: Of the step, >= 0.
    floor: Smallest coordinate before the last division, >= 0.

  Returns:
    On the simplex, `[..., n]`.
  """
  stepped = tf.nn.softmax(tf.math.log(point) - learning_rate * gradient)
  kept = tf.maximum(stepped, floor)
  return kept / tf.reduce_sum(kept, axis=-1, keepdims=True)


def squared_mapping_norm(
  point: tf.Tensor, stepped: tf.Tensor, learning_rate: tf.Tensor | float
) -> tf.Tensor:
  """Returns |(point - stepped) / learning_rate|_1^2, `[...]`.

  The squared size of the gradient mapping, 0 where the point is stationary.

  Args:
    point: `[..., n]`.
    stepped: What `entropic_step` made of it, `[..., n]`.
    learning_rate: Of that step, > 0.
  """
  mapping = (point - stepped) / learning_rate
  return tf.square(tf.reduce_sum(tf.abs(mapping), axis=-1))
