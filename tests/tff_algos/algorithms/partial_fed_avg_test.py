"""Tests of partial personalization: against NumPy, reductions, what leaves a client.

Linear regression with an intercept: the kernel is shared, the intercept private.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import cohorts, index_hash, toys
from tff_algos.adversaries import attacks, collusion
from tff_algos.algorithms import fed_avg, partial_fed_avg
from tff_algos.core import errors, seeds
from tff_algos.numerics import optimizers, statistics
from tff_algos.privacy import mechanism, private_algorithm
from tff_algos.rounds import phase_types
from tff_algos.stages.client import local_training

_THETAS = np.array([[2.0, -1, 0.5], [1, 1, 1]])
_SIZES = (7, 0, 1, 9, 5)
_SOURCE = toys.linear_clients(_THETAS, np.full((5, 2), 0.5), _SIZES)
_MODEL = toys.build(
  {'name': 'linear_regression', 'use_bias': True}, (3,), 1, 'regression'
)
_IDS = _SOURCE.population.client_ids


def _training(rate, epochs, batch_size=4):
  return local_training.LocalTrainingConfig(
    epochs, batch_size, optimizers.OptimizerConfig('sgd', rate)
  )


_OPTIONS = {
  'cohort_size': 3,
  'loss_scale': 0.5,
  'local_training': _training(0.05, 1),
}


def _build(model=_MODEL, **options):
  options = {
    **_OPTIONS,
    'private': ('bias',),
    'private_training': _training(0.1, 2),
  } | options
  return partial_fed_avg.build_partial_fed_avg(
    model, partial_fed_avg.PartialFedAvgConfig(**options)
  )


def _data(k):
  examples = _SOURCE.examples(k)
  return examples.x.astype(np.float64), examples.y.astype(np.float64)


def _cohort(round_num):
  return cohorts.drawn(0, round_num, np.flatnonzero(_SIZES), 3)


def _descend(k, w, b, seed, config, moves):
  """SGD on one client; `moves` are the weights that step."""
  x, y = _data(k)
  losses = []
  for rows in index_hash.batches(
    seed, config.num_local_epochs, len(y), config.batch_size
  ):
    residual = x[rows] @ w + b - y[rows]
    losses.extend(residual**2)
    rate = config.optimizer.learning_rate
    step = x[rows].T @ residual / len(rows), residual.mean()
    w = w - rate * step[0] * ('w' in moves)
    b = b - rate * step[1] * ('b' in moves)
  return w, b, losses


def _oracle(schedule, num_rounds, interval):
  server_state, _ = toys.initial_states(_build(), _SOURCE.population)
  w = server_state.shared_weights['kernel'][:, 0].astype(np.float64)
  biases = np.zeros(5)
  both, own = _training(0.05, 1), _training(0.1, 2)
  for t in range(1, num_rounds + 1):
    uploads, losses = [], []
    for k in _cohort(t):
      seed = seeds.derive_seed(0, 'train', t, _IDS[k])
      if schedule == 'together':
        local, biases[k], seen = _descend(k, w, biases[k], seed, both, 'wb')
      else:
        _, biases[k], _ = _descend(k, w, biases[k], seed + 1, own, 'b')
        local, _, seen = _descend(k, w, biases[k], seed, both, 'w')
      uploads.append(local)
      losses.extend(seen)
    w = np.average(uploads, axis=0, weights=np.array(_SIZES)[_cohort(t)])
    if interval and t % interval == 0:
      for k in np.flatnonzero(_SIZES):
        seed = seeds.derive_seed(0, 'personalize', t, _IDS[k])
        _, biases[k], _ = _descend(k, w, biases[k], seed, own, 'b')
  return w, biases, np.mean(losses)


@pytest.mark.parametrize('schedule', partial_fed_avg.SCHEDULES)
@pytest.mark.parametrize('interval', [0, 2])
def test_rounds_agree_with_numpy(schedule, interval):
  """float32, so to 1e-4."""
  algorithm = _build(schedule=schedule, personalization_interval=interval)
  server_state, states, outputs = toys.run_rounds(algorithm, _SOURCE, 3)
  w, biases, loss = _oracle(schedule, 3, interval)
  kernel = server_state.shared_weights['kernel'][:, 0]
  np.testing.assert_allclose(kernel, w, rtol=1e-4)
  private = [state.private_weights['bias'][0] for state in states]
  np.testing.assert_allclose(private, biases, rtol=1e-4, atol=1e-6)
  assert np.ptp(private) > 0.1
  trained = statistics.value_of(outputs[-1].client_metrics['loss'])
  np.testing.assert_allclose(trained, loss, rtol=1e-4)
  served = algorithm.personalized_weights(
    server_state, states[3], tf.constant(3)
  )
  np.testing.assert_allclose(served['kernel'][:, 0], w, rtol=1e-4)
  np.testing.assert_allclose(served['bias'][0], biases[3], rtol=1e-4)


def _fed_avg(model):
  config = fed_avg.FedAvgConfig(**_OPTIONS)
  server_state, _, _ = toys.run_rounds(
    fed_avg.build_fed_avg(model, config), _SOURCE, 2
  )
  return server_state.model_weights


@pytest.mark.parametrize('schedule', partial_fed_avg.SCHEDULES)
def test_with_nothing_private_it_is_fed_avg(schedule):
  """Bit for bit."""
  server_state, _, _ = toys.run_rounds(
    _build(private=(), schedule=schedule), _SOURCE, 2
  )
  np.testing.assert_equal(
    dict(server_state.shared_weights), dict(_fed_avg(_MODEL))
  )


def test_with_a_private_body_a_model_of_one_layer_is_trained_by_fed_avg():
  """LG-FedAvg; bit for bit."""
  one_layer = toys.linear(3)
  algorithm = _build(one_layer, private=('all_but_last_layer',))
  server_state, _, _ = toys.run_rounds(algorithm, _SOURCE, 2)
  np.testing.assert_equal(
    dict(server_state.shared_weights), dict(_fed_avg(one_layer))
  )


@pytest.mark.parametrize('attack', ['gaussian_noise', *collusion.ATTACKS])
def test_with_everything_private_an_attack_changes_nothing(attack):
  options = {
    'private': ('all',),
    'cohort_size': 0,
    'server_optimizer': optimizers.OptimizerConfig('sgd', 1.0, clip_norm=1.0),
  }
  algorithm = attacks.attack(
    _build(**options),
    attacks.AttackConfig(attack, fraction=0.4),
    np.array([False, False, True, False, True]),
  )
  _, found, outputs = toys.run_rounds(algorithm, _SOURCE, 2)
  _, expected, _ = toys.run_rounds(_build(**options), _SOURCE, 2)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_equal(one, other)
  assert outputs[0].server_state.shared_weights == {}


def test_with_everything_private_no_noise_can_be_added():
  algorithm = private_algorithm.make_private(
    _build(private=('all',), cohort_size=0),
    mechanism.PrivacyConfig(noise_multiplier=1.0),
    private_algorithm.Facts(4, 1, ''),
  )
  with pytest.raises(errors.ConfigError, match="'train' .* sums no field"):
    phase_types.check_algorithm(algorithm)


def test_with_everything_private_each_client_is_alone_and_nothing_is_sent():
  algorithm = _build(private=('all',), cohort_size=0)
  server_state, states, outputs = toys.run_rounds(algorithm, _SOURCE, 2)
  before, _ = toys.initial_states(algorithm, _SOURCE.population)
  start = before.initial_private_weights
  for k in np.flatnonzero(_SIZES):
    w, b = start['kernel'][:, 0].astype(np.float64), 0.0
    for t in (1, 2):
      seed = seeds.derive_seed(0, 'train', t, _IDS[k])
      w, b, _ = _descend(k, w, b, seed, _training(0.05, 1), 'wb')
    own = states[k].private_weights
    np.testing.assert_allclose(own['kernel'][:, 0], w, rtol=1e-4)
    np.testing.assert_allclose(own['bias'][0], b, rtol=1e-4)
  np.testing.assert_equal(states[1].private_weights, dict(start))
  (call,) = algorithm.plan_round(None, _SOURCE.population, 1, 0)
  assert call.cost == (0, 0, 4)
  np.testing.assert_equal(
    dict(server_state.initial_private_weights), dict(start)
  )


def test_no_private_weight_is_in_a_message_or_in_a_result():
  algorithm = _build(personalization_interval=1)
  types = phase_types.check_algorithm(algorithm)
  for name, phase in types.items():
    assert list(phase.message) == ['kernel'], name
  assert list(types['train'].output.result['shared_weights']) == ['kernel']
  assert list(types['train'].output.result) == [
    'shared_weights',
    'client_weight',
  ]
  assert not types['personalize'].output.result


@pytest.mark.parametrize(
  ('schedule', 'num_solves'), [('together', 3), ('private_first', 6)]
)
def test_cost_counts_the_shared_weights(schedule, num_solves):
  """3 of 4 parameters, 3 drawn clients; afterwards, 4 that have examples."""
  algorithm = _build(schedule=schedule, personalization_interval=2)
  (train,) = algorithm.plan_round(None, _SOURCE.population, 1, 0)
  assert train.client_indices.tolist() == _cohort(1).tolist()
  assert train.cost == (9, 9, num_solves)
  train, personalize = algorithm.plan_round(None, _SOURCE.population, 2, 0)
  assert personalize.client_indices.tolist() == [0, 2, 3, 4]
  assert personalize.cost == (12, 0, 4)


def test_who_was_not_drawn_keeps_its_private_weights():
  _, states, _ = toys.run_rounds(_build(), _SOURCE, 1)
  drawn = _cohort(1)
  for k, state in enumerate(states):
    assert (state.private_weights['bias'][0] != 0) == (k in drawn)


def test_private_weights_start_alike_or_not():
  for private, is_common in (('common', True), ('own', False)):
    algorithm = _build(private=('kernel',), initial_private_weights=private)
    server_state, states = toys.initial_states(algorithm, _SOURCE.population)
    first = server_state.initial_private_weights['kernel']
    same = [np.array_equal(s.private_weights['kernel'], first) for s in states]
    assert same == [is_common] * 5


def test_new_users_get_the_shared_weights_and_the_first_private_ones():
  algorithm = _build()
  server_state, _, _ = toys.run_rounds(algorithm, _SOURCE, 1)
  stacked = algorithm.cluster_weights(server_state)
  np.testing.assert_array_equal(
    stacked['kernel'][0], server_state.shared_weights['kernel']
  )
  np.testing.assert_array_equal(stacked['bias'], [[0]])


def test_personalization_of_nothing_is_refused():
  text = "personalization_interval is 3, but model 'linear_regression' has no private"
  with pytest.raises(errors.ConfigError, match=text):
    _build(private=(), personalization_interval=3)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    (
      {'schedule': 'shared_first'},
      "schedule must be one of 'together', 'priva",
    ),
    ({'cohort_size': -1}, 'cohort_size must be an integer >= 0, got -1'),
    ({'personalization_interval': -1}, 'personalization_interval must be an i'),
    ({'weighting': 'size'}, "weighting must be one of 'uniform', 'examples'"),
    (
      {'initial_private_weights': 'zero'},
      'initial_private_weights must be one',
    ),
    ({'loss_scale': 0.0}, 'loss_scale must be a finite number > 0, got 0.0'),
    ({'private': ('tail',)}, "'tail' is neither a weight nor a layer of model"),
  ],
)
def test_bad_options_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(**options)
