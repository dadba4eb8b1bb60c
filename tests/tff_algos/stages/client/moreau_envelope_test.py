"""Tests of the client of pFedMe and pFedKM.

The points of `tests.testing.points` with `loss_scale` a / 2 are the toy
f(theta) = a / 2 mean |theta - x|^2, whose proximal problem around w has the
solution (a c + lambda w) / (a + lambda), with c the mean of the points. The
learning rate 1 / (a + lambda) solves it in one step.
"""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, index_hash, points
from tff_algos.core import errors, seeds
from tff_algos.stages.client import moreau_envelope, objectives

_A, _LAMBDA, _ETA = 2.0, 15.0, 0.005
_EXACT = {
  'num_proximal_steps': 1,
  'personal_learning_rate': 1 / (_A + _LAMBDA),
  'client_learning_rate': _ETA,
  'proximal_weight': _LAMBDA,
}
_OBJECTIVE = objectives.mean_loss(points.model(2), _A / 2)
_SEED = seeds.derive_seed(0, 'train', 1, 'c0')
_W = np.array([3.0, -1.0])
_X = np.random.default_rng(0).normal(size=(6, 2))


def _point(values):
  return {'point': tf.constant(values, tf.float32)}


def _work(x=_X, w=_W, state=None, objective=_OBJECTIVE, capacity=0, **options):
  """Returns w, theta, the state after, and the metrics."""
  config = moreau_envelope.MoreauEnvelopeConfig(**options)
  state = state or moreau_envelope.initial_state(points.model(2), config)
  data = client_data.build(
    x, np.zeros(len(x)), capacity, np.nan if len(x) else 0.0
  )
  models, state, metrics = moreau_envelope.work(
    objective, _point(w), state, data, tf.constant(_SEED), config
  )
  local, personalized = (one['point'].numpy() for one in models)
  return local, personalized, state, metrics


def _numpy(x, w, theta, options):
  """The same by plain steps in float64; also the losses met."""
  config = moreau_envelope.MoreauEnvelopeConfig(**options)
  num_steps, losses = config.num_local_steps, []
  batches = index_hash.batches(_SEED, num_steps, len(x), config.batch_size)
  for rows in itertools.islice(batches, num_steps):
    batch = x[rows]
    for _ in range(config.num_proximal_steps):
      losses.append(((batch - theta) ** 2).sum(axis=1))
      gradient = _A * (theta - batch.mean(axis=0))
      gradient += config.weight_decay * theta
      gradient += config.proximal_weight * (theta - w)
      if gradient @ gradient > config.proximal_tolerance:
        theta = theta - config.personal_learning_rate * gradient
    share = config.client_learning_rate * config.proximal_weight
    w = w - share * (w - theta)
  return w, theta, np.concatenate(losses)


@pytest.mark.parametrize(
  'options',
  [
    {'num_local_steps': 4, 'batch_size': 4, **_EXACT},
    {
      'num_local_steps': 5,
      'batch_size': 2,
      'num_proximal_steps': 3,
      'personal_learning_rate': 0.02,
      'client_learning_rate': 0.03,
      'weight_decay': 0.4,
    },
    {
      'num_local_steps': 3,
      'batch_size': 4,
      'num_proximal_steps': 20,
      'personal_learning_rate': 0.03,
      'proximal_tolerance': 0.05,
    },
  ],
  ids=['exact', 'with decay', 'with tolerance'],
)
def test_steps_are_those_of_plain_numpy(options):
  local, personalized, _, metrics = _work(**options)
  expected = _numpy(_X, _W, _W, options)
  loss = metrics['loss']
  np.testing.assert_allclose(local, expected[0], rtol=1e-5)
  np.testing.assert_allclose(personalized, expected[1], rtol=1e-5)
  np.testing.assert_allclose(loss.total, expected[2].sum(), rtol=1e-5)
  assert loss.weight == len(expected[2])


@pytest.mark.parametrize('num_local_steps', [1, 10])
def test_local_model_has_a_closed_form(num_local_steps):
  """w_R = c + q^R (w_0 - c) with q = 1 - eta lambda a / (a + lambda)."""
  local, _, _, _ = _work(
    num_local_steps=num_local_steps, batch_size=6, **_EXACT
  )
  c = _X.mean(axis=0)
  factor = (1 - _ETA * _LAMBDA * _A / (_A + _LAMBDA)) ** num_local_steps
  np.testing.assert_allclose(local, c + factor * (_W - c), rtol=1e-6)


@pytest.mark.parametrize(
  ('eta', 'num_local_steps', 'decay', 'weight'),
  [
    (0.005, 10, 0.0, _LAMBDA),
    (0.05, 20, 0.0, _LAMBDA),
    (0.005, 1, 0.7, _LAMBDA),
    (0.1, 3, 0.0, _LAMBDA),
    (0.05, 5, 0.0, 1.0),
    (0.05, 5, 0.0, 4.0),
  ],
)
def test_upload_memory_is_the_share_of_the_received_model(
  eta, num_local_steps, decay, weight
):
  """q^R, by how much another upload a second received model would make."""
  a = _A + decay
  options = {
    **_EXACT,
    'num_local_steps': num_local_steps,
    'batch_size': 6,
    'client_learning_rate': eta,
    'personal_learning_rate': 1 / (a + weight),
    'proximal_weight': weight,
    'weight_decay': decay,
  }
  first, second = (_work(w=w, **options) for w in (_W, _W + 4))
  remembered = (second[0] - first[0]) / 4
  q = 1 - eta * weight * a / (a + weight)
  np.testing.assert_allclose(remembered, q**num_local_steps, rtol=1e-5)
  for _, _, _, metrics in (first, second):
    found = metrics['upload_memory']
    np.testing.assert_allclose(found.total, q**num_local_steps, rtol=1e-5)
    assert found.weight == 1


@pytest.mark.parametrize(('curvature', 'expected'), [(-3.0, 1.0), (0.0, 1.0)])
def test_upload_memory_is_all_where_f_does_not_pull_back(curvature, expected):
  """A saddle pushes apart what was together; nothing is forgotten."""

  def objective(weights, batch):
    point = weights['point']
    value = tf.reduce_sum(curvature / 2 * point**2 + point)
    return value, tf.zeros_like(batch.mask)

  *_, metrics = _work(objective=objective)
  assert metrics['upload_memory'].total == expected


def test_exact_solution_and_its_gradient():
  """One local step: (w_0 - w_1) / eta is the gradient of the envelope."""
  local, personalized, _, _ = _work(num_local_steps=1, batch_size=6, **_EXACT)
  c = _X.mean(axis=0)
  np.testing.assert_allclose(
    personalized, (_A * c + _LAMBDA * _W) / (_A + _LAMBDA), rtol=1e-6
  )
  gradient = _A * _LAMBDA / (_A + _LAMBDA) * (_W - c)
  np.testing.assert_allclose((_W - local) / _ETA, gradient, rtol=1e-3)


def _recorded(batch_positions, objective, weights, batch):
  tf.py_function(
    lambda x, mask: batch_positions.append(x.numpy()[mask.numpy() > 0][:, 0]),
    [batch.x, batch.mask],
    [],
  )
  return objective(weights, batch)


def test_each_step_draws_a_batch_and_solves_on_it_alone():
  """Two batches an epoch; each is seen three times in a row, and the last one
  twice more for the curvature."""
  x = np.stack([np.arange(6.0), np.zeros(6)], axis=1)
  seen = []
  _work(
    x,
    objective=functools.partial(_recorded, seen, _OBJECTIVE),
    num_local_steps=4,
    batch_size=3,
    num_proximal_steps=3,
  )
  solves = [seen[i : i + 3] for i in range(0, 12, 3)]
  assert len(seen) == 14
  np.testing.assert_array_equal(seen[12:], [seen[11]] * 2)
  for solve in solves:
    np.testing.assert_array_equal(solve, [solve[0]] * 3)
  drawn = [tuple(solve[0]) for solve in solves]
  assert len(set(drawn)) == 4
  for epoch in (0, 2):
    assert sorted(drawn[epoch] + drawn[epoch + 1]) == [0, 1, 2, 3, 4, 5]


def test_capacity_changes_no_bit():
  """Padding holds NaN."""
  tight = _work(num_local_steps=5, batch_size=4)
  padded = _work(num_local_steps=5, batch_size=4, capacity=17)
  np.testing.assert_array_equal(padded[:2], tight[:2])
  assert padded[3] == tight[3]


def test_without_examples_nothing_moves():
  for capacity in (1, 5):
    local, personalized, _, metrics = _work(np.zeros((0, 2)), capacity=capacity)
    np.testing.assert_array_equal(local, _W)
    np.testing.assert_array_equal(personalized, _W)
    assert metrics['loss'].weight == metrics['upload_memory'].weight == 0
    assert metrics['upload_memory'].total == 0


def test_without_examples_neither_the_pull_nor_the_decay_moves_anything():
  """Where theta starts apart from w, both have a gradient."""
  own = moreau_envelope.ClientState(_point([7.0, 5.0]), tf.constant(1))
  local, personalized, _, _ = _work(
    np.zeros((0, 2)), capacity=5, state=own, start='own', weight_decay=0.5
  )
  np.testing.assert_array_equal(local, _W)
  np.testing.assert_array_equal(personalized, [7, 5])


def test_theta_starts_at_the_received_model_or_at_its_own():
  """One local step without much solving: theta hardly leaves its start."""
  options = {
    'num_local_steps': 1,
    'num_proximal_steps': 1,
    'personal_learning_rate': 1e-6,
  }
  own = moreau_envelope.ClientState(_point([7.0, 7.0]), tf.constant(1))
  fresh = moreau_envelope.ClientState(_point([7.0, 7.0]), tf.constant(0))
  for start, state, expected in (
    ('received', own, _W),
    ('own', own, [7, 7]),
    ('own', fresh, _W),
  ):
    local, personalized, _, _ = _work(state=state, start=start, **options)
    np.testing.assert_allclose(personalized, expected, rtol=1e-4)
    share = _ETA * _LAMBDA
    expected_local = (1 - share) * _W + share * np.array(expected)
    np.testing.assert_allclose(local, expected_local, rtol=1e-4)


def test_client_keeps_the_model_that_is_asked_for():
  options = {'num_local_steps': 2, 'batch_size': 3}
  local, personalized, state, _ = _work(**options)
  np.testing.assert_array_equal(
    state.personalized_weights['point'], personalized
  )
  assert state.num_updates == 1
  assert np.abs(local - personalized).min() > 0.01
  assert state.local_weights == ()
  *_, state, _ = _work(kept='local', **options)
  np.testing.assert_array_equal(state.personalized_weights['point'], local)
  assert state.local_weights == ()
  *_, state, _ = _work(kept='both', **options)
  np.testing.assert_array_equal(
    state.personalized_weights['point'], personalized
  )
  np.testing.assert_array_equal(state.local_weights['point'], local)


def test_a_client_is_served_the_received_model_until_it_took_part():
  state = moreau_envelope.ClientState(
    _point([7.0, 7.0]), tf.constant(0), _point([9.0, 9.0])
  )
  for served in (state.serve, state.serve_local):
    np.testing.assert_array_equal(served(_point(_W))['point'], _W)
  state = state._replace(num_updates=tf.constant(2))
  np.testing.assert_array_equal(state.serve(_point(_W))['point'], [7, 7])
  np.testing.assert_array_equal(state.serve_local(_point(_W))['point'], [9, 9])


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'num_local_steps': 0}, 'num_local_steps must be an integer >= 1, got 0'),
    ({'batch_size': 0}, 'batch_size must be an integer >= 1'),
    ({'num_proximal_steps': 0}, 'num_proximal_steps must be an integer >= 1'),
    ({'client_learning_rate': -0.1}, 'client_learning_rate must be a finite'),
    ({'proximal_weight': 0.0}, 'proximal_weight must be a finite number > 0'),
    ({'personal_learning_rate': -1.0}, 'personal_learning_rate must be a fin'),
    ({'proximal_tolerance': -1.0}, 'proximal_tolerance must be a finite numbe'),
    ({'weight_decay': -0.1}, 'weight_decay must be a finite number >= 0'),
    ({'start': 'theirs'}, "start must be one of 'received', 'own', got"),
    ({'kept': 'theirs'}, "kept must be one of 'personalized', 'local', 'both'"),
    (
      {'personal_learning_rate': 0.14},
      r'must be below 2, got 0.14 \* 15: .* Lower .* below 0.133',
    ),
    ({'start': 'own', 'kept': 'local'}, "start 'own' needs the theta"),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    moreau_envelope.MoreauEnvelopeConfig(**options)
