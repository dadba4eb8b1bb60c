"""Which arguments a function's value depends on."""

import pytest
import tensorflow as tf

from tff_algos.export import dependencies

SPEC = tf.TensorSpec([3], tf.float32)


@pytest.mark.parametrize(
  ('function', 'used'),
  [
    (lambda a, b: a, [True, False]),
    (lambda a, b: {'y': [tf.exp(b) + 1]}, [False, True]),
    (lambda a, b: tf.zeros([2]), [False, False]),
    (lambda a, b: (a, 2 * b), [True, True]),
    (lambda a, b: tf.zeros(tf.shape(b)), [False, False]),
    (
      lambda a, b: tf.while_loop(
        lambda i, _: i < 3, lambda i, total: (i + 1, total + b), (0, b)
      ),
      [False, True],
    ),
  ],
)
def test_used_leaves(function, used):
  assert dependencies.used_leaves(function, SPEC, SPEC) == used


def test_argument_behind_a_control_dependency_is_used():
  def function(a, b):
    with tf.control_dependencies([tf.debugging.assert_positive(a)]):
      return tf.identity(b)

  assert dependencies.used_leaves(function, SPEC, SPEC) == [True, True]
