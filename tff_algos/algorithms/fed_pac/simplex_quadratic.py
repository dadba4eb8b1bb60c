"""Minima of convex quadratics on the simplex."""

import tensorflow as tf

_NUM_STEPS = 40
# In units of the matrix's size: `_RIDGE` keeps every linear system solvable,
# `_SMALLEST_GAP` bounds the barrier parameter from below, and `_PENALTY` keeps
# coordinates that are not allowed at 0.
_RIDGE, _SMALLEST_GAP, _PENALTY = 1e-9, 1e-14, 1e3


def minimize(matrix: tf.Tensor, is_allowed: tf.Tensor) -> tf.Tensor:
  """Returns argmin <u, matrix u> over u >= 0 with sum 1.

  A primal-dual interior-point method (Nocedal and Wright 2006, section 16.6) in
  float64, as eigenvalues may differ by orders of magnitude. If there are
  several minima, it returns one of them.

  Args:
    matrix: Symmetric positive semidefinite, `[..., n, n]`.
    is_allowed: bool `[n]`; other coordinates are 0. If none is allowed, all
      are 0.

  Returns:
    `[..., n]`, float32.
  """
  matrix = tf.cast(matrix, tf.float64)
  # An upper bound of the eigenvalues: the largest absolute row sum.
  row_sums = tf.reduce_sum(tf.abs(matrix), -1, keepdims=True)
  size = tf.reduce_max(row_sums, -2, keepdims=True)
  hessian = 2 * tf.math.divide_no_nan(matrix, size)
  cost = tf.where(is_allowed, tf.zeros([], tf.float64), _PENALTY)
  ones = tf.ones_like(hessian[..., 0])  # pyright: ignore[reportArgumentType]
  count = tf.cast(tf.shape(matrix)[-1], tf.float64)

  def step(i, point, slack, level):
    gap = tf.reduce_mean(point * slack, axis=-1, keepdims=True)
    aim = tf.maximum(0.1 * gap, _SMALLEST_GAP) / point - slack
    gradient = tf.linalg.matvec(hessian, point) + cost
    wanted = aim + slack + level - gradient
    system = hessian + tf.linalg.diag(slack / point + _RIDGE)
    along, across = tf.unstack(
      tf.linalg.solve(system, tf.stack([wanted, ones], axis=-1)), axis=-1
    )
    missing = 1 - tf.reduce_sum(point + along, axis=-1, keepdims=True)
    more = missing / tf.reduce_sum(across, axis=-1, keepdims=True)
    move = along + more * across
    slack_move = aim - slack / point * move
    rate = tf.minimum(_room(point, move), _room(slack, slack_move))
    return (
      i + 1,
      point + rate * move,
      slack + rate * slack_move,
      level + rate * more,
    )

  start = (tf.constant(0), ones / count, ones, tf.zeros_like(ones[..., :1]))  # pyright: ignore[reportArgumentType]
  _, point, _, _ = tf.while_loop(
    lambda i, *_: i < _NUM_STEPS, step, start, parallel_iterations=1
  )
  point = tf.where(is_allowed, point, tf.zeros_like(point))
  total = tf.reduce_sum(point, axis=-1, keepdims=True)
  return tf.cast(tf.math.divide_no_nan(point, total), tf.float32)


def _room(point, move):
  """Returns the share of a step that keeps every coordinate > 0, `[..., 1]`."""
  ratio = tf.reduce_max(-move / point, axis=-1, keepdims=True)
  return 0.99 / tf.maximum(ratio, 0.99)
