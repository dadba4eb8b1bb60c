"""Tests of the server's step, against NumPy."""

import numpy as np
import tensorflow as tf

from tff_algos.numerics import optimizers
from tff_algos.rounds import aggregation
from tff_algos.stages.server import server_optimizer

_MEANS = np.array([[1.0, -2.0], [3.0, 0.5], [-1.0, 0.0]])


def _run(config, weights=(1, 1, 1)):
  point = {'w': tf.constant([0.5, 0.25])}
  slots = server_optimizer.initial_slots(point, config)
  for mean, weight in zip(_MEANS, weights, strict=True):
    value = {'w': tf.constant(mean, tf.float32)}
    point, slots = server_optimizer.step(
      point, aggregation.Mean(value, tf.constant(float(weight))), slots, config
    )
  return point['w'].numpy()


def test_by_default_the_model_becomes_the_mean():
  np.testing.assert_array_equal(_run(server_optimizer.REPLACE), _MEANS[-1])


def test_replacing_takes_the_mean_to_the_last_bit():
  """0.1 - (0.1 - 1e-9) is not 1e-9."""
  point, tiny = ({'w': tf.constant([one])} for one in (0.1, 1e-9))
  mean = aggregation.Mean(tiny, tf.constant(1.0))
  nobody = aggregation.Mean(tiny, tf.constant(0.0))

  def run(function, mean, config=server_optimizer.REPLACE):
    return float(function(point, mean, (), config)[0]['w'][0])

  exact = server_optimizer.replace_or_step
  assert run(exact, mean) == float(tiny['w'][0])
  assert run(server_optimizer.step, mean) != float(tiny['w'][0])
  assert run(exact, nobody) == float(point['w'][0])
  half = optimizers.OptimizerConfig('sgd', 0.5)
  assert run(exact, mean, half) == run(server_optimizer.step, mean, half)


def test_sgd_with_momentum():
  """v <- 0.9 v + 0.5 (w - mean), w <- w - v; a round without anybody: as it was."""
  config = optimizers.OptimizerConfig('sgd', 0.5, momentum=0.9)
  w, v = np.array([0.5, 0.25]), np.zeros(2)
  for mean in _MEANS[[0, 2]]:
    v = 0.9 * v + 0.5 * (w - mean)
    w = w - v
  np.testing.assert_allclose(_run(config, (3, 0, 2)), w, rtol=1e-6)


def test_adam():
  config = optimizers.OptimizerConfig('adam', 0.1, epsilon=1e-3)
  w, m, v = np.array([0.5, 0.25]), np.zeros(2), np.zeros(2)
  for t, mean in enumerate(_MEANS, 1):
    g = w - mean
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    root = np.sqrt(v / (1 - 0.999**t))
    w = w - 0.1 * m / (1 - 0.9**t) / (root + 1e-3)
  np.testing.assert_allclose(_run(config), w, rtol=1e-4)
