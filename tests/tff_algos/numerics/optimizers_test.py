"""Tests of the optimizers against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.numerics import optimizers

_START = np.array([1.0, -2, 0.5], np.float32)


def _gradients(num_steps=20):
  generator = np.random.default_rng(5)
  return generator.normal(size=(num_steps, 3)).astype(np.float32)


def _run(optimizer, gradients, start=_START):
  weights = {'w': tf.constant(start)}
  slots = optimizer.initialize(weights)
  trajectory = []
  for gradient in gradients:
    weights, slots = _step(optimizer, weights, gradient, slots, 1.0)
    trajectory.append(weights['w'].numpy())
  return np.array(trajectory)


def _step(optimizer, weights, gradient, slots, is_real, decay=None):
  is_real = tf.constant(is_real)
  scaled = gradient * optimizer.gradient_scale(is_real)
  return optimizer.step(weights, {'w': scaled}, slots, is_real, decay)


def _numpy_adam(gradients, learning_rate, beta_1, beta_2, epsilon):
  w, m, v = _START.astype(np.float64), 0.0, 0.0
  trajectory = []
  for t, g in enumerate(gradients.astype(np.float64), start=1):
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    root = np.sqrt(v / (1 - beta_2**t))
    w = w - learning_rate * m / (1 - beta_1**t) / (root + epsilon)
    trajectory.append(w)
  return np.array(trajectory)


@pytest.mark.parametrize('is_real', [0.0, 1.0])
@pytest.mark.parametrize(
  'optimizer',
  [optimizers.sgd(0.1), optimizers.sgd(0.1, 0.7), optimizers.adam(0.05)],
)
def test_decay_is_a_term_of_the_objective(optimizer, is_real):
  weights = {'w': tf.constant(_START)}
  slots = optimizer.initialize(weights)
  for gradient in _gradients():
    whole = gradient + 0.3 * weights['w']
    expected, expected_slots = _step(optimizer, weights, whole, slots, is_real)
    weights, slots = _step(optimizer, weights, gradient, slots, is_real, 0.3)
    tf.nest.map_structure(
      lambda one, other: np.testing.assert_allclose(
        one, other, rtol=1e-5, atol=1e-6
      ),
      (weights, slots),
      (expected, expected_slots),
    )
  if not is_real:
    np.testing.assert_array_equal(weights['w'], _START)


@pytest.mark.parametrize(
  'constants', [(0.9, 0.999, 1e-8), (0.5, 0.9, 0.1), (0.0, 0.0, 1e-8)]
)
def test_adam_agrees_with_numpy(constants):
  gradients = _gradients()
  ours = _run(optimizers.adam(0.05, *constants), gradients)
  expected = _numpy_adam(gradients, 0.05, *constants)
  np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('scale', [1e-3, 1, 1e4])
def test_adams_first_step_is_the_learning_rate_whatever_the_gradient(scale):
  gradient = np.array([[3.0, -0.2, 1.0]], np.float32) * scale
  step = _run(optimizers.adam(0.01), gradient)[0] - _START
  np.testing.assert_allclose(step, -0.01 * np.sign(gradient[0]), rtol=1e-3)


@pytest.mark.parametrize(
  'optimizer',
  [
    optimizers.adam(0.05),
    optimizers.sgd(0.1),
    optimizers.sgd(0.1, 0.7),
    optimizers.clipped(optimizers.sgd(0.1, 0.7), 0.5),
  ],
)
def test_padded_steps_change_nothing(optimizer):
  """Nor do they advance Adam's bias correction, or decay a momentum."""
  gradients = _gradients(4)
  weights = {'w': tf.constant(_START)}
  slots = optimizer.initialize(weights)
  for i, gradient in enumerate(gradients):
    for is_real in (0.0, 1.0, 0.0)[: 3 - i % 2]:
      other = gradient if is_real else gradient + 7
      weights, slots = _step(optimizer, weights, other, slots, is_real)
  np.testing.assert_array_equal(weights['w'], _run(optimizer, gradients)[-1])


@pytest.mark.parametrize('momentum', [0.0, 0.7])
def test_sgd_agrees_with_numpy(momentum):
  gradients = _gradients(6)
  velocity, w, expected = 0.0, _START.astype(np.float64), []
  for gradient in gradients:
    velocity = momentum * velocity + gradient
    w = w - 0.1 * velocity
    expected.append(w)
  ours = _run(optimizers.sgd(0.1, momentum), gradients)
  np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_sgd_without_momentum_keeps_no_slots():
  weights = {'w': tf.constant(_START)}
  assert optimizers.sgd(0.1).initialize(weights) == ()


@pytest.mark.parametrize(
  'config',
  [
    optimizers.OptimizerConfig('sgd', 0.3),
    optimizers.OptimizerConfig('sgd', 0.3, momentum=0.5),
    optimizers.OptimizerConfig(
      'adam', 0.3, beta_1=0.8, beta_2=0.99, epsilon=1e-3
    ),
  ],
)
def test_build_optimizer_uses_every_option_of_its_config(config):
  named = {
    'sgd': lambda: optimizers.sgd(config.learning_rate, config.momentum),
    'adam': lambda: optimizers.adam(
      config.learning_rate, config.beta_1, config.beta_2, config.epsilon
    ),
  }[config.name]()
  gradients = _gradients(5)
  np.testing.assert_array_equal(
    _run(optimizers.build_optimizer(config), gradients), _run(named, gradients)
  )


@pytest.mark.parametrize('momentum', [0.0, 0.7])
def test_longer_gradients_are_scaled_to_the_norm(momentum):
  """Of all weights together; a decay is not clipped."""
  gradients = _gradients(6) * np.array([[0.1], [3], [0.2], [1], [0], [5]])
  config = optimizers.OptimizerConfig('sgd', 0.1, momentum, clip_norm=0.5)
  optimizer = optimizers.build_optimizer(config)
  weights = {'a': tf.constant(_START[:1]), 'b': tf.constant(_START[1:])}
  slots = optimizer.initialize(weights)
  w, velocity, was_clipped = _START.astype(np.float64), 0.0, []
  for gradient in gradients:
    scaled = tf.constant(gradient, tf.float32) * optimizer.gradient_scale(
      tf.constant(1.0)
    )
    weights, slots = optimizer.step(
      weights,
      {'a': scaled[:1], 'b': scaled[1:]},
      slots,
      tf.constant(1.0),
      0.3,
    )
    length = np.sqrt(np.sum(gradient**2))
    was_clipped.append(bool(length > 0.5))
    clipped = gradient * (0.5 / length if length > 0.5 else 1.0)
    velocity = momentum * velocity + clipped + 0.3 * w
    w = w - 0.1 * velocity
    found = np.concatenate([weights['a'], weights['b']])
    np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-6)
  assert was_clipped == [False, True, False, True, False, True]


def test_a_gradient_whose_norm_overflows_makes_no_step():
  config = optimizers.OptimizerConfig('sgd', 1.0, clip_norm=1.0)
  optimizer = optimizers.build_optimizer(config)
  moved = [_run(optimizer, [np.float32([g, 0, 0])])[0, 0] for g in (1e19, 2e19)]
  np.testing.assert_allclose(moved, [0.0, 1.0], atol=1e-6)


def test_adam_is_given_the_clipped_gradient():
  gradients = _gradients(5)
  lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
  clipped = gradients * np.minimum(1, 0.5 / lengths)
  config = optimizers.OptimizerConfig('adam', 0.05, clip_norm=0.5)
  np.testing.assert_allclose(
    _run(optimizers.build_optimizer(config), gradients),
    _numpy_adam(clipped, 0.05, 0.9, 0.999, 1e-8),
    rtol=1e-5,
    atol=1e-6,
  )


def test_a_limit_that_no_gradient_reaches_changes_no_bit():
  gradients = _gradients(5)
  free, limited = (
    optimizers.OptimizerConfig('sgd', 0.1, 0.7, clip_norm=norm)
    for norm in (0.0, 100.0)
  )
  np.testing.assert_array_equal(
    *(
      _run(optimizers.build_optimizer(one), gradients)
      for one in (limited, free)
    )
  )


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'clip_norm': -1.0}, 'clip_norm must be a finite number >= 0, got -1.0'),
    ({'name': 'rmsprop'}, "name must be one of 'sgd', 'adam', got 'rmsprop'"),
    ({'learning_rate': 0.0}, 'learning_rate must be a finite number > 0'),
    ({'learning_rate': float('nan')}, 'learning_rate .* got nan'),
    ({'momentum': 1.0}, 'momentum must be a number >= 0 and < 1, got 1.0'),
    ({'beta_1': -0.1}, 'beta_1 must be a number >= 0 and < 1, got -0.1'),
    ({'beta_2': 1.5}, 'beta_2 must be a number >= 0 and < 1, got 1.5'),
    ({'epsilon': 0.0}, 'epsilon must be a finite number > 0, got 0.0'),
    ({'name': 'adam', 'momentum': 0.9}, "momentum is 0.9, which is SGD's"),
    ({'beta_1': 1 - 1e-8}, 'beta_1 is 0.99999999, which is 1.0 in float32'),
    ({'beta_2': 1 - 1e-8}, 'beta_2 is 0.99999999, which is 1.0 in float32'),
    ({'epsilon': 1e-50}, 'epsilon is 1e-50, which is 0.0 in float32'),
  ],
)
def test_a_constant_out_of_range_is_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    optimizers.OptimizerConfig(**options)
