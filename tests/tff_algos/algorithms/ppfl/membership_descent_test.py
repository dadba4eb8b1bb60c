"""Tests of mirror descent on memberships against NumPy in float64."""

import dataclasses
import types
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, index_hash, ppfl_oracle, toys
from tff_algos.algorithms.ppfl import membership_descent, mixing
from tff_algos.core import errors, seeds
from tff_algos.numerics import statistics

_SEED = seeds.derive_seed(1, 'membership', 1, 'c0')
_GENERATOR = np.random.default_rng(3)
_THETA = _GENERATOR.normal(size=(3, 4))
_X = _GENERATOR.normal(size=(10, 4))
_TRUE = np.array([0.7, 0.2, 0.1])
_Y = _X @ (_TRUE @ _THETA)
_START = np.array([0.2, 0.5, 0.3])
_CONFIG = membership_descent.MembershipConfig(0.3, floor=1e-6)
_MIXTURE = mixing.build(toys.linear(4), 3, ('all',), 'outputs')
_WEIGHTS = OrderedDict(
  shared=OrderedDict(),
  canonical=OrderedDict(
    kernel=tf.constant(_THETA[..., np.newaxis], tf.float32)
  ),
)


def _data(x=_X, y=_Y, padding=3, filling=7.0):
  return client_data.build(x, y, len(y) + padding, filling)


def _descend(
  config=_CONFIG, data=None, mixture=_MIXTURE, weights=_WEIGHTS, **told
):
  return membership_descent.descend(
    mixture,
    weights,
    tf.constant(_START, tf.float32),
    data or _data(filling=0.0),
    tf.constant(_SEED),
    config,
    loss_scale=0.5,
    **told,
  )


def _oracle(batches, rate=0.3, weight=1.0, pull=0.0):
  c = _START
  for rows in batches:
    slope = ppfl_oracle.gradients(_X[rows], _Y[rows], _THETA, c)[1]
    c = ppfl_oracle.mirror_step(c, weight * slope + pull, rate, 1e-6)
  return c


def test_one_step_with_the_full_gradient():
  """Algorithm 3: c * exp(-eta (p grad f + penalty)), normalized."""
  pull = np.array([0.5, -0.2, 0.0])
  found, loss = _descend(
    client_weight=0.25,
    penalty_gradient=tf.constant(pull, tf.float32),
  )
  np.testing.assert_allclose(
    found, _oracle([slice(None)], 0.3, 0.25, pull), rtol=1e-5
  )
  expected = np.mean((_X @ (_START @ _THETA) - _Y) ** 2)
  np.testing.assert_allclose(statistics.value_of(loss), expected, rtol=1e-5)


def test_no_membership_falls_below_the_floor():
  """A steep step leaves one alive; the floor is taken before the last division."""
  config = dataclasses.replace(_CONFIG, floor=0.1)
  pull = tf.constant([0.0, 1e3, 1e3])
  found, _ = _descend(config, client_weight=0.0, penalty_gradient=pull)
  np.testing.assert_allclose(found, np.array([1, 0.1, 0.1]) / 1.2, rtol=1e-6)


def test_several_steps_and_batches():
  full = dataclasses.replace(_CONFIG, num_epochs=4)
  np.testing.assert_allclose(
    _descend(full)[0], _oracle([slice(None)] * 4), rtol=1e-4
  )
  batched = dataclasses.replace(_CONFIG, num_epochs=2, batch_size=4)
  batches = index_hash.batches(_SEED, 2, 10, 4)
  found, loss = _descend(batched)
  np.testing.assert_allclose(found, _oracle(batches), rtol=1e-4)
  assert float(loss.weight) == 20


@pytest.mark.parametrize('mode', mixing.MIXINGS)
@pytest.mark.parametrize('batch_size', [0, 4])
def test_what_is_computed_ahead_changes_nothing(mode, batch_size):
  """For a network: outputs computed once, against a gradient of `apply`."""
  mixture = mixing.build(toys.mlp((4,)), 3, ('all',), mode)
  weights = mixture.initialize(tf.constant([4, 5]))
  y = _GENERATOR.integers(0, 3, 10)
  data = _data(_X, y, filling=0.0)
  config = dataclasses.replace(_CONFIG, num_epochs=2, batch_size=batch_size)
  found, _ = _descend(config, data, mixture, weights)
  c = tf.constant(_START, tf.float32)
  for rows in index_hash.batches(_SEED, 2, 10, batch_size or 10):
    with tf.GradientTape() as tape:
      tape.watch(c)
      outputs = mixture.apply(weights, c, tf.constant(_X[rows], tf.float32))
      losses = mixture.model.example_losses(
        outputs, tf.constant(y[rows], tf.int32)
      )
      loss = 0.5 * tf.reduce_mean(losses)
    slope = tape.gradient(loss, c).numpy()
    c = tf.constant(
      ppfl_oracle.mirror_step(c.numpy(), slope, 0.3, 1e-6), tf.float32
    )
  np.testing.assert_allclose(found, c, rtol=1e-4)
  assert np.abs(found - _START).max() > 1e-4


def test_a_client_without_examples_is_moved_by_the_penalty_alone():
  nobody = _data(_X[:0], _Y[:0], padding=4, filling=0.0)
  for config in (_CONFIG, dataclasses.replace(_CONFIG, batch_size=2)):
    found, loss = _descend(config, nobody)
    np.testing.assert_allclose(found, _START, rtol=1e-6)
    assert float(loss.weight) == 0


@pytest.mark.parametrize('batch_size', [0, 2])
@pytest.mark.parametrize('padding', [1, 5])
def test_without_examples_an_epoch_is_a_step_of_the_penalty(
  batch_size, padding
):
  """Whatever the batch size, and however far a client is padded."""
  nobody = _data(_X[:0], _Y[:0], padding=padding, filling=0.0)
  config = dataclasses.replace(_CONFIG, num_epochs=2, batch_size=batch_size)
  pull = np.array([1.0, 0, 0])
  found, _ = _descend(
    config, nobody, penalty_gradient=tf.constant(pull, tf.float32)
  )
  expected = _START
  for _ in range(2):
    expected = ppfl_oracle.mirror_step(expected, pull, 0.3, 1e-6)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize('batch_size', [0, 2])
def test_every_label_counts_once(batch_size):
  """Sentences of 3, 1, 2 and no words: the gradient is a mean over words."""
  mixture = mixing.build(toys.transformer(), 3, ('head',), 'probabilities')
  weights = mixture.initialize(tf.constant([4, 5]))
  x = np.array([[2, 3, 4], [5, 0, 0], [4, 2, 0], [3, 0, 0]])
  y = np.array([[3, 4, 2], [3, 0, 0], [1, 5, 0], [0, 0, 0]])
  data = client_data.build(x, y)
  config = dataclasses.replace(_CONFIG, batch_size=batch_size)
  found, met = _descend(config, data, mixture, weights)
  assert float(met.weight) == 6
  c = _START
  order = index_hash.shuffled(_SEED, 0, 4)
  for rows in (order[:2], order[2:]) if batch_size else [np.arange(4)]:
    outputs = mixture.canonical_outputs(weights, tf.constant(x, tf.int32))
    shares = tf.nn.softmax(outputs).numpy()[:, rows]
    slope, count = np.zeros(3), 0
    for row, place in zip(*np.nonzero(y[rows]), strict=True):
      likely = shares[:, row, place, y[rows][row, place]].astype(np.float64)
      slope -= likely / (c @ likely)
      count += 1
    c = ppfl_oracle.mirror_step(c, 0.5 * slope / count, 0.3, 1e-6)
  np.testing.assert_allclose(found, c, rtol=1e-5)


def test_what_lies_in_the_padding_does_no_harm():
  expected, _ = _descend()
  np.testing.assert_array_equal(_descend(data=_data(filling=-3.0))[0], expected)


def _gradient(config, data=None):
  return membership_descent.gradient(
    _MIXTURE,
    _WEIGHTS,
    tf.constant(_START, tf.float32),
    data or _data(filling=0.0),
    tf.constant(_SEED),
    config,
    0.5,
  )[0]


def test_gradient_of_all_examples_and_of_a_batch():
  """Algorithm 2; the mean of many batches is the gradient of all."""
  full = ppfl_oracle.gradients(_X, _Y, _THETA, _START)[1]
  np.testing.assert_allclose(_gradient(_CONFIG), full, rtol=1e-4)
  rows = index_hash.shuffled(_SEED, 0, 10)[:4]
  np.testing.assert_allclose(
    _gradient(dataclasses.replace(_CONFIG, batch_size=4)),
    ppfl_oracle.gradients(_X[rows], _Y[rows], _THETA, _START)[1],
    rtol=1e-4,
  )


def test_newcomers_find_their_mixture():
  """Convex, and without noise solved by the true one."""
  config = dataclasses.replace(
    _CONFIG, num_newcomer_steps=3_000, newcomer_learning_rate=0.03
  )
  newcomers = membership_descent.newcomers(_MIXTURE, config, 0.5)

  class State:
    model_weights = _WEIGHTS

  fit = tf.function(lambda data: newcomers.fit(State, data, _SEED))
  np.testing.assert_allclose(fit(_data(filling=0.0)), _TRUE, atol=2e-5)
  weights = newcomers.weights(State, tf.constant(_TRUE, tf.float32))
  outputs = _MIXTURE.personalized_model().apply(
    weights, tf.constant(_X, tf.float32)
  )
  np.testing.assert_allclose(outputs[:, 0], _Y, rtol=1e-3, atol=1e-4)
  none = dataclasses.replace(config, num_newcomer_steps=0)
  untrained = membership_descent.newcomers(_MIXTURE, none)
  np.testing.assert_allclose(
    untrained.fit(State, _data(), _SEED), [1 / 3] * 3, rtol=1e-6
  )


def test_a_newcomers_step_has_a_rate_of_its_own():
  config = dataclasses.replace(
    _CONFIG, num_newcomer_steps=1, newcomer_learning_rate=0.02
  )
  newcomers = membership_descent.newcomers(_MIXTURE, config, 0.5)
  state = types.SimpleNamespace(model_weights=_WEIGHTS)
  equal = np.full(3, 1 / 3)
  slope = ppfl_oracle.gradients(_X, _Y, _THETA, equal)[1]
  np.testing.assert_allclose(
    newcomers.fit(state, _data(filling=0.0), _SEED),
    ppfl_oracle.mirror_step(equal, slope, 0.02, 1e-6),
    rtol=1e-5,
  )


def test_noise_moves_what_newcomers_find_by_little():
  """Of 0.05, on forty labels."""
  x = _GENERATOR.normal(size=(40, 4))
  y = x @ (_TRUE @ _THETA) + 0.05 * _GENERATOR.normal(size=40)
  config = dataclasses.replace(_CONFIG, num_epochs=1_000, learning_rate=0.1)
  found, _ = tf.function(lambda: _descend(config, _data(x, y, filling=0.0)))()
  assert np.abs(found - _TRUE).max() < 0.03


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'learning_rate': 0.0}, 'learning_rate must be a finite number > 0'),
    ({'num_epochs': 0}, 'num_epochs must be an integer >= 1, got 0'),
    ({'batch_size': -1}, 'batch_size must be an integer >= 0, got -1'),
    (
      {'gradient_weight': 'p'},
      "gradient_weight must be one of 'client_weight'",
    ),
    ({'floor': 1.0}, 'floor must be a number >= 0 and < 1, got 1.0'),
    ({'num_newcomer_steps': -1}, 'num_newcomer_steps must be an integer >= 0'),
    (
      {'newcomer_learning_rate': 0.0},
      'newcomer_learning_rate must be a finite',
    ),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    membership_descent.MembershipConfig(**options)


def _step(point, gradient, learning_rate, floor=0.0):
  return membership_descent.entropic_step(
    tf.constant(point), tf.constant(gradient), learning_rate, floor
  ).numpy()


def _divergence(u, v):
  return np.sum(u * np.log(u / v), axis=-1)


@pytest.mark.parametrize('learning_rate', [0.01, 0.7, 20.0])
def test_step_is_the_minimum_and_has_the_value_of_the_closed_form(
  learning_rate,
):
  """min <g, u - c> + KL(u, c) / eta = -log <c, exp(-eta g)> / eta - <g, c>; a
  step with exp(exp(.)) in place of exp(.) is above it.
  """
  point = _GENERATOR.dirichlet(np.ones(4))
  gradient = _GENERATOR.normal(size=4)

  def value(u):
    linear = np.sum(gradient * (u - point), axis=-1)
    return linear + _divergence(u, point) / learning_rate

  stepped = _step(point, gradient, learning_rate)
  lowest = -np.log(np.sum(point * np.exp(-learning_rate * gradient)))
  lowest = lowest / learning_rate - gradient @ point
  np.testing.assert_allclose(value(stepped), lowest, rtol=1e-9, atol=1e-12)
  others = _GENERATOR.dirichlet(np.ones(4), 5_000)
  near = 0.99 * stepped + 0.01 * others
  assert value(others).min() >= lowest - 1e-12
  assert value(near).min() >= lowest - 1e-12
  if learning_rate < 1:  # Else the double exponential overflows.
    twice = point * np.exp(np.exp(-learning_rate * gradient))
    assert value(twice / twice.sum()) > lowest + 1e-9


def test_small_steps_follow_the_simplexs_gradient_flow():
  """c+ = c - eta (diag(c) - c c') g + O(eta^2)."""
  point = _GENERATOR.dirichlet(np.ones(5))
  gradient = _GENERATOR.normal(size=5)
  slope = point * gradient - point * (point @ gradient)
  errors = [
    np.abs(_step(point, gradient, eta) - (point - eta * slope)).max()
    for eta in (1e-2, 1e-3)
  ]
  assert errors[1] < 1e-5
  np.testing.assert_allclose(errors[0] / errors[1], 100, rtol=0.05)


def test_mapping_is_steep_enough_and_lipschitz():
  """Di et al., Eqs. 35 and 36."""
  for _ in range(200):
    point = _GENERATOR.dirichlet(np.ones(4))
    first, second = _GENERATOR.normal(size=(2, 4)) * 3
    eta = 10 ** _GENERATOR.uniform(-3, 1)
    mappings = [(point - _step(point, g, eta)) / eta for g in (first, second)]
    norm = float(
      membership_descent.squared_mapping_norm(
        tf.constant(point), tf.constant(_step(point, first, eta)), eta
      )
    )
    np.testing.assert_allclose(norm, np.abs(mappings[0]).sum() ** 2)
    assert first @ mappings[0] >= norm - 1e-9
    gap = np.abs(mappings[0] - mappings[1]).sum()
    assert gap <= np.abs(first - second).max() + 1e-9


def test_ten_thousand_steep_steps_stay_on_the_simplex():
  """float32, gradients of up to a thousand, and back again."""
  gradients = tf.constant(
    _GENERATOR.uniform(-1e3, 1e3, (10_000, 3, 4)).astype(np.float32)
  )

  @tf.function(autograph=False)
  def run():
    return tf.scan(
      lambda point, g: membership_descent.entropic_step(point, g, 1.0),
      gradients,
      tf.fill([3, 4], 0.25),
    )

  points = run().numpy()
  assert np.isfinite(points).all()
  np.testing.assert_allclose(points.sum(axis=-1), 1, atol=1e-6)
  assert points.min() >= membership_descent.FLOOR * 0.999
  # The floor lets what was lost come back.
  largest = points.argmax(axis=-1)
  assert all(len(np.unique(column)) == 4 for column in largest.T)


def test_without_a_floor_a_coordinate_dies():
  point = _step(np.array([0.5, 0.5], 'f'), np.array([1e3, 0], 'f'), 1.0)
  assert point.tolist() == [0, 1]
  floored = _step(np.array([0.5, 0.5], 'f'), np.array([1e3, 0], 'f'), 1.0, 1e-6)
  np.testing.assert_allclose(floored, [1e-6, 1], rtol=1e-5)


def test_equal_gradients_and_rate_zero_change_nothing():
  point = np.array([0.2, 0.3, 0.5])
  np.testing.assert_allclose(_step(point, np.full(3, 7.0), 1.0), point)
  np.testing.assert_allclose(_step(point, np.array([1.0, 2, 3]), 0.0), point)


def test_nan_is_not_hidden():
  assert np.isnan(_step(np.array([0.5, 0.5]), np.array([np.nan, 0]), 1.0)).any()
