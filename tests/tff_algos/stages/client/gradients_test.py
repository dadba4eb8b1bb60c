"""Tests of gradients, Hessian products and descent, by closed forms.

f(w) = sum a w^4 has the gradient 4 a w^3 and the Hessian diag(12 a w^2); its
central difference along v errs by exactly 4 a step^2 v^3.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import points
from tff_algos.core import algorithm
from tff_algos.numerics import statistics
from tff_algos.stages.client import gradients, objectives

_A = np.array([1.0, -0.5, 2.0], np.float32)
_W = np.array([0.5, -1.0, 1.5], np.float32)
_V = np.array([1.0, 2.0, -0.5], np.float32)
_SEED = tf.constant([3, 4])
_BATCH = algorithm.ClientData(tf.zeros([1, 3]), tf.zeros([1]), tf.ones([1]))


def _quartic(weights, batch):
  # The second leaf is nowhere in the value: its gradient is 0, and not None.
  return tf.reduce_sum(_A * weights['w'] ** 4), batch.y


def _tree(first, second=(7.0,)):
  return {'w': tf.constant(first), 'unused': tf.constant(second)}


def _points(rows, mask=None):
  x = tf.constant(rows, tf.float32)
  mask = tf.ones(len(rows)) if mask is None else tf.constant(mask, tf.float32)
  return algorithm.ClientData(x, tf.zeros(len(rows)), mask)


_OBJECTIVE = objectives.mean_loss(points.model(2), 0.5)


def test_gradient_and_losses():
  found, losses = gradients.gradient(_quartic, _tree(_W), _BATCH)
  np.testing.assert_allclose(found['w'], 4 * _A * _W**3, rtol=1e-6)
  assert found['unused'].numpy().tolist() == [0]
  assert losses.shape == (1,)


def test_gradient_without_a_real_example_is_zero():
  data = _points([[3, 4], [5, 6]], [0, 0])
  found, _ = gradients.gradient(_OBJECTIVE, {'point': tf.ones(2)}, data)
  assert found['point'].numpy().tolist() == [0, 0]


def test_hessian_product_is_exact():
  product = gradients.hessian_product(_quartic, _tree(_W), _BATCH, _tree(_V))
  np.testing.assert_allclose(product['w'], 12 * _A * _W**2 * _V, rtol=1e-6)
  assert product['unused'].numpy().tolist() == [0]


@pytest.mark.parametrize('step', [0.5, 0.125, 0.03125])
def test_difference_errs_by_the_square_of_its_step(step):
  product = gradients.difference_product(
    _quartic, _tree(_W), _BATCH, _tree(_V), step
  )
  exact = 12 * _A * _W**2 * _V
  error = 4 * _A * step**2 * _V**3
  np.testing.assert_allclose(product['w'] - exact, error, atol=2e-4)
  assert product['unused'].numpy().tolist() == [0]


@pytest.mark.parametrize('num_steps', [0, 1, 3])
def test_descent_goes_a_share_of_the_way_in_every_step(num_steps):
  """The gradient of half the squared distance is w - mean; mean (2, 3)."""
  data = _points([[0, 2], [4, 4], [99, 99]], [1, 1, 0])
  start = {'point': tf.constant([10.0, 3.0])}
  descend = tf.function(
    lambda count: gradients.descend(
      _OBJECTIVE, start, data, _SEED, 0.25, count
    ),
    autograph=False,
  )
  weights, loss = descend(tf.constant(num_steps))
  left = 0.75 ** np.arange(num_steps + 1)
  np.testing.assert_allclose(weights['point'], [2 + 8 * left[-1], 3], rtol=1e-6)
  # The spread around the mean is 4 + 1, met in every step.
  met = 5 + (8 * left[:-1]) ** 2
  assert float(loss.weight) == 2 * num_steps
  if num_steps:
    np.testing.assert_allclose(statistics.value_of(loss), met.mean(), rtol=1e-6)


def test_descent_without_examples_stays_where_it_is():
  start = {'point': tf.constant([0.1, 0.3])}
  weights, loss = gradients.descend(
    _OBJECTIVE, start, _points([[3, 4]], [0]), _SEED, 0.25, 3
  )
  np.testing.assert_array_equal(weights['point'], start['point'])
  assert float(loss.weight) == 0


def test_a_function_kept_as_one_is_one_operation():
  graph = tf.function(
    lambda x: gradients.as_one(lambda x: x + x)(x) * 3.0, autograph=False
  ).get_concrete_function(tf.TensorSpec([]))
  calls = [op for op in graph.graph.get_operations() if 'Call' in op.type]
  assert len(calls) == 1
  assert float(graph(tf.constant(2.0))) == 12


def test_eagerly_a_function_kept_as_one_is_itself():
  def double(x):
    return x + x

  assert gradients.as_one(double) is double
