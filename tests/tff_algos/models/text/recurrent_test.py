"""Tests of LSTM layers, against NumPy gate by gate."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import lstm_oracle
from tff_algos.core import errors
from tff_algos.models.text import recurrent

_STEPS, _BATCH, _INPUTS, _UNITS = 6, 3, 4, 5


def _random(*shape):
  generator = np.random.default_rng(sum(shape))
  return generator.normal(size=shape).astype(np.float32)


_X = _random(_STEPS, _BATCH, _INPUTS)
_KERNEL = _random(_INPUTS + _UNITS, 4 * _UNITS)
_BIAS = _random(4 * _UNITS)
_DIRECTION = _random(_STEPS, _BATCH, _UNITS)


def _expected(x, kernel, bias):
  each = [lstm_oracle.outputs(x[:, b], kernel, bias) for b in range(x.shape[1])]
  return np.stack(each, axis=1)


@pytest.mark.parametrize('recurrence', recurrent.RECURRENCES)
@pytest.mark.parametrize('in_graph', [False, True])
def test_outputs_agree_with_numpy(recurrence, in_graph):
  def layer(x):
    return recurrent.lstm(x, _KERNEL, tf.constant(_BIAS), recurrence)

  if in_graph:  # The size of the batch is known when it runs only.
    spec = tf.TensorSpec([_STEPS, None, _INPUTS], tf.float32)
    layer = tf.function(layer, input_signature=[spec])
  expected = _expected(_X, _KERNEL, _BIAS)
  assert np.abs(expected).max() > 0.5
  np.testing.assert_allclose(layer(_X), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('recurrence', recurrent.RECURRENCES)
def test_one_step(recurrence):
  outputs = recurrent.lstm(
    tf.constant(_X[:1]), _KERNEL, tf.constant(_BIAS), recurrence
  )
  expected = _expected(_X[:1], _KERNEL, _BIAS)
  np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-6)


def _gradient(recurrence):
  """Returns the slopes of <outputs, direction> by x, kernel and bias."""
  values = [tf.constant(value) for value in (_X, _KERNEL, _BIAS)]
  with tf.GradientTape() as tape:
    tape.watch(values)
    total = tf.reduce_sum(recurrent.lstm(*values, recurrence) * _DIRECTION)
  return tape.gradient(total, values)


@pytest.mark.parametrize('recurrence', recurrent.RECURRENCES)
@pytest.mark.parametrize('which', [0, 1, 2])
def test_gradient_is_the_slope_of_numpys(recurrence, which):
  """Along a random line, by central differences in float64."""
  along = _random(*(_X, _KERNEL, _BIAS)[which].shape, 1)[..., 0]

  def total(shift):
    values = [np.float64(value) for value in (_X, _KERNEL, _BIAS)]
    values[which] += shift * along
    return (_expected(*values) * _DIRECTION).sum()

  slope = (total(1e-6) - total(-1e-6)) / 2e-6
  ours = np.sum(_gradient(recurrence)[which].numpy() * along)
  assert abs(slope) > 0.1
  np.testing.assert_allclose(ours, slope, rtol=1e-3)


@pytest.mark.parametrize('size', [0.0, 1e3, 1e30])
@pytest.mark.parametrize('recurrence', recurrent.RECURRENCES)
def test_gradients_stay_finite_where_gates_are_shut_or_wide_open(
  recurrence, size
):
  values = [tf.constant(_X), tf.constant(_KERNEL * size), tf.constant(_BIAS)]
  with tf.GradientTape() as tape:
    tape.watch(values)
    outputs = recurrent.lstm(*values, recurrence)
  for leaf in (outputs, *tape.gradient(outputs, values)):
    assert np.isfinite(leaf).all()


@pytest.mark.parametrize('recurrence', recurrent.RECURRENCES)
def test_bfloat16_stays_near_float32(recurrence):
  values = [tf.cast(v, tf.bfloat16) for v in (_X, _KERNEL * 0.3, _BIAS)]
  outputs = recurrent.lstm(*values, recurrence)
  assert outputs.dtype == tf.bfloat16
  rounded = [tf.cast(value, tf.float64).numpy() for value in values]
  # Units are below 1, and a step rounds a dozen times.
  tolerance = 2.0**-8 if recurrence == 'fused' else _STEPS * 12 * 2.0**-9
  np.testing.assert_allclose(
    tf.cast(outputs, tf.float64), _expected(*rounded), rtol=0, atol=tolerance
  )


def test_unrolled_has_second_derivatives():
  """By central differences of the fused gradient, which has none."""
  along = _random(*_KERNEL.shape, 1)[..., 0]
  kernel = tf.constant(_KERNEL)

  def slope(kernel, recurrence):
    with tf.GradientTape() as tape:
      tape.watch(kernel)
      outputs = recurrent.lstm(
        tf.constant(_X), kernel, tf.constant(_BIAS), recurrence
      )
      total = tf.reduce_sum(outputs * _DIRECTION)
    return tape.gradient(total, kernel)

  with tf.GradientTape() as tape:
    tape.watch(kernel)
    inner = tf.reduce_sum(slope(kernel, 'unrolled') * along)
  ours = tape.gradient(inner, kernel)
  step = 1e-2
  expected = (
    slope(kernel + step * along, 'fused')
    - slope(kernel - step * along, 'fused')
  ) / (2 * step)
  error = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
  assert error < 1e-2


def test_fused_says_that_it_has_no_second_derivative():
  values = [tf.constant(value) for value in (_X, _KERNEL, _BIAS)]
  with tf.GradientTape() as outer:
    outer.watch(values)
    with tf.GradientTape() as inner:
      inner.watch(values)
      outputs = recurrent.lstm(*values, 'fused')
    slope = inner.gradient(outputs, values)[1]
  with pytest.raises(errors.ConfigError, match="recurrence to 'unrolled'"):
    outer.gradient(slope, values[1])


@pytest.mark.parametrize('recurrence', recurrent.RECURRENCES)
def test_cells_are_not_cut_off(recurrence):
  """Gates that are open let 1 in at every step."""
  bias = tf.fill([4], 20.0)
  kernel = tf.zeros([2, 4])
  last = recurrent.lstm(tf.zeros([9, 1, 1]), kernel, bias, recurrence)
  np.testing.assert_allclose(last[:, 0, 0], np.tanh(np.arange(1, 10)), 1e-6)


def test_initial_weights():
  """The variance lies within 5 standard errors: false alarms below 1e-5."""
  weights = recurrent.initial_weights(tf.constant([0, 1]), 2, 'lstm_0', 8, 50)
  assert list(weights) == ['lstm_0/kernel', 'lstm_0/bias']
  kernel, bias = (leaf.numpy() for leaf in weights.values())
  assert kernel.shape == (58, 200)
  assert abs(kernel.var() * 258 / 2 - 1) < 5 * (2 / kernel.size) ** 0.5
  assert bias.tolist() == [0] * 100 + [1] * 50 + [0] * 50
