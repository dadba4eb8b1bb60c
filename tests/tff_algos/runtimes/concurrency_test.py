"""One graph, called by several threads at the same time."""

import numpy as np
import tensorflow as tf

from tff_algos.runtimes import concurrency


def _graph():
  """Returns a graph that TensorFlow would rewrite: large sums in two loops."""

  @tf.function(input_signature=[tf.TensorSpec([200_000])], autograph=False)
  def run(x):
    def inner(i, y):
      parts = [tf.sin(y + float(k)) for k in range(8)]
      return i + 1, tf.add_n(parts) / 8

    def outer(i, y):
      return i + 1, tf.while_loop(lambda j, _: j < 5, inner, (0, y))[1]

    return tf.while_loop(lambda i, _: i < 20, outer, (0, x))[1]

  return run


def test_calls_at_the_same_time_agree():
  """Fails most times in a plain pool of threads."""
  run, x = _graph(), tf.linspace(0.0, 1.0, 200_000)
  with concurrency.thread_pool(4) as pool:
    found = [one.numpy() for one in pool.map(run, [x] * 8)]
  for one in found[1:]:
    np.testing.assert_array_equal(one, found[0])
