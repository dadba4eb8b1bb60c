"""Tests of the local objectives against NumPy and finite differences."""

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import algorithm
from tff_algos.stages import objectives

_MODEL = toys.linear(3)
_X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
_Y = np.array([1.0, -2, 0.5, 3, 1], np.float32)
_KERNEL = np.array([[0.5], [-1], [2]], np.float32)


def _batch(mask):
  return algorithm.ClientData(
    tf.constant(_X), tf.constant(_Y), tf.constant(mask, tf.float32)
  )


def _value(objective, kernel, batch):
  return objective({'kernel': tf.constant(kernel)}, batch)


def test_mean_loss_is_over_real_examples_only():
  value, losses = _value(
    objectives.mean_loss(_MODEL, 0.5), _KERNEL, _batch([1, 0, 1, 1, 0])
  )
  squares = (_X @ _KERNEL[:, 0] - _Y) ** 2
  np.testing.assert_allclose(losses, squares, rtol=1e-5)
  np.testing.assert_allclose(value, 0.5 * squares[[0, 2, 3]].mean(), rtol=1e-5)


def test_mean_loss_of_an_empty_batch_is_zero():
  value, _ = _value(objectives.mean_loss(_MODEL), _KERNEL, _batch([0] * 5))
  assert float(value) == 0


def test_masked_examples_have_no_gradient():
  def gradient(mask, y):
    weights = {'kernel': tf.constant(_KERNEL)}
    batch = _batch(mask)._replace(y=tf.constant(y))
    with tf.GradientTape() as tape:
      tape.watch(weights)
      value, _ = objectives.mean_loss(_MODEL)(weights, batch)
    return tape.gradient(value, weights)['kernel'].numpy()

  changed = _Y.copy()
  changed[1] = 1e6
  mask = [1, 0, 1, 1, 1]
  np.testing.assert_array_equal(gradient(mask, _Y), gradient(mask, changed))


def test_the_penalty_does_not_depend_on_the_batch():
  center = {'kernel': tf.constant(_KERNEL + 1)}
  base = objectives.mean_loss(_MODEL)
  for mask in ([1] * 5, [1, 0, 0, 0, 0], [0] * 5):
    value, losses = _value(
      objectives.proximal_loss(base, center, 0.5), _KERNEL, _batch(mask)
    )
    alone, base_losses = _value(base, _KERNEL, _batch(mask))
    np.testing.assert_allclose(value - alone, 0.25 * 3, rtol=1e-5)
    np.testing.assert_array_equal(losses, base_losses)


def test_gradient_of_the_proximal_objective_by_finite_differences():
  """FedSoft, Eq. 4; the difference is exact up to rounding for quadratics."""
  center = {'kernel': tf.constant([[1.0], [0], [-1]])}
  objective = objectives.proximal_loss(
    objectives.mean_loss(_MODEL, 0.5), center, 0.7
  )
  batch = _batch([1, 1, 0, 1, 1])
  weights = {'kernel': tf.constant(_KERNEL)}
  with tf.GradientTape() as tape:
    tape.watch(weights)
    value, _ = objective(weights, batch)
  gradient = tape.gradient(value, weights)['kernel'].numpy()
  step = 0.125
  for i in range(3):
    shift = np.zeros_like(_KERNEL)
    shift[i] = step
    above, _ = _value(objective, _KERNEL + shift, batch)
    below, _ = _value(objective, _KERNEL - shift, batch)
    np.testing.assert_allclose(
      gradient[i, 0], (above - below) / (2 * step), rtol=1e-4, atol=1e-5
    )
