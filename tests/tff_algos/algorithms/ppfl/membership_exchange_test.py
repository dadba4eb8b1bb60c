"""Tests of what travels beside the weights: who, what and what it costs."""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import ppfl_oracle, toys
from tff_algos.algorithms.ppfl import (
  affinity,
  membership_descent,
  membership_exchange,
  mixing,
)
from tff_algos.core import algorithm
from tff_algos.rounds import aggregation

_POPULATION = algorithm.Population(
  ('a', 'b', 'c', 'd'), np.array([3, 0, 5, 2], np.int64)
)
_DRAWN = np.array([0, 3], np.int32)
_MIXTURE = mixing.build(toys.mlp(), 2, ('all',), 'outputs')
_PHASES = ('count_labels', 'stationarity', 'shared', 'membership', 'joint')
_TABLE = np.array([[0.5, 0.5], [0.3, 0.7], [0.9, 0.1]], np.float32)
_SLOPES = np.array([[1.0, 0], [0, 2]], np.float32)


def _build(
  schedule='alternating', weight=0.0, kind='cosine', is_partial=False, **options
):
  return membership_exchange.MembershipExchange(
    _MIXTURE,
    schedule,
    is_partial,
    options.pop('num_joint_rounds', 0),
    membership_descent.MembershipConfig(**options),
    affinity.LaplacianConfig(weight, kind),
  )


def _fields(exchange):
  return {phase: list(exchange.client_input(phase)) for phase in _PHASES}


def _phases(exchange, round_num, shared_prob=0.5, interval=0):
  return exchange.phases(round_num, 0, shared_prob, interval)


def test_phases_of_a_round():
  assert _phases(_build(), 1) == ['joint']
  freezing = [_phases(_build(num_joint_rounds=2), number) for number in (2, 3)]
  assert freezing == [['joint'], ['membership']]
  counting = _build('shared_first', 0.1)
  assert _phases(counting, 1, interval=2) == [
    *('stationarity', 'shared', 'membership')
  ]
  assert _phases(counting, 2, interval=2) == ['shared', 'membership']
  drawing = _build('random_block')
  assert _phases(drawing, 1, 1.0) == ['shared']
  assert _phases(drawing, 1, 0.0) == ['membership']
  # A fair draw falls on one block alone but once in 10^8.
  drawn = {tuple(_phases(drawing, round_num)) for round_num in range(1, 30)}
  assert drawn == {('shared',), ('membership',)}


def test_clients_are_told_what_they_need():
  pull, p = 'penalty_gradient', 'client_weight'
  assert _fields(_build()) == {
    'count_labels': [],
    'stationarity': [p],
    'shared': [],
    'membership': [p],
    'joint': [p],
  }
  assert _fields(_build(weight=0.1, gradient_weight='none')) == {
    'count_labels': [],
    'stationarity': [pull, p],
    'shared': [],
    'membership': [pull],
    'joint': [pull],
  }
  # The server adds the penalty itself, but for what a client measures.
  at_server = _fields(_build('random_block', weight=0.1))
  assert at_server['membership'] == ['membership', p]
  assert at_server['stationarity'] == ['membership', pull, p]
  assert at_server['shared'] == ['membership']


@pytest.mark.parametrize(
  ('kind', 'is_partial', 'moved'),
  [
    ('cosine', False, _DRAWN),
    ('cosine', True, _DRAWN),
    ('uniform', False, [0, 1, 2, 3]),
    ('uniform', True, _DRAWN),
  ],
)
def test_clients_without_examples_move_if_the_penalty_reaches_them_and_all_do(
  kind, is_partial, moved
):
  exchange = _build(weight=0.1, kind=kind, is_partial=is_partial)
  # Of a full round, those that have examples were drawn.
  drawn = _DRAWN if is_partial else np.array([0, 2, 3], np.int32)
  moved = drawn if kind == 'cosine' else moved
  for phase, expected in (
    ('shared', drawn),
    ('membership', moved),
    ('joint', moved),
    ('stationarity', [0, 2, 3] if is_partial else moved),
  ):
    found = exchange.cohort(phase, drawn, _POPULATION)
    assert found.tolist() == list(expected)
    assert found.dtype == np.int32


class _State:
  membership = np.array(
    [[0.5, 0.5], [0.5, 0.5], [1, 0], [0.2, 0.8]], np.float32
  )
  affinity_features = np.ones((4, 1), np.float32)


def _call(exchange, phase, round_num=1):
  weights = np.array([0.3, 0, 0.5, 0.2], np.float32)
  return exchange.call(phase, _State, _DRAWN, weights, round_num)


def test_calls_tell_each_client_its_own():
  """W of ones: 2 lambda (4 c_i - sum_j c_j)."""
  call = _call(_build(weight=0.1, kind='uniform'), 'joint', 6)
  inputs = call.client_inputs
  np.testing.assert_allclose(
    inputs['penalty_gradient'], [[-0.04, 0.04], [-0.28, 0.28]], atol=1e-6
  )
  np.testing.assert_allclose(inputs['client_weight'], [0.3, 0.2])
  inputs = _call(_build('random_block'), 'membership').client_inputs
  np.testing.assert_array_equal(inputs['membership'], _State.membership[_DRAWN])
  assert _call(_build(weight=0.1), 'count_labels').client_inputs == ()


def test_a_measurement_is_of_the_laplacian_whatever_pulls():
  exchange = dataclasses.replace(
    _build(), laplacian=affinity.LaplacianConfig(0.1, 'uniform', 'degree')
  )
  for phase, expected in (
    ('stationarity', [[-0.04, 0.04], [-0.28, 0.28]]),
    ('joint', [[0.2, 0.2], [0.08, 0.32]]),
  ):
    inputs = _call(exchange, phase).client_inputs
    np.testing.assert_allclose(inputs['penalty_gradient'], expected, atol=1e-6)


@pytest.mark.parametrize(
  ('exchange', 'phase', 'round_num', 'cost'),
  [
    (_build(), 'joint', 9, (206, 206, 1)),
    (_build(weight=0.1), 'joint', 1, (208, 208, 1)),
    (_build(weight=0.1), 'count_labels', 1, (0, 3, 0)),
    (_build(weight=0.1), 'stationarity', 1, (208, 208, 0)),
    (_build(), 'stationarity', 9, (206, 208, 0)),
    (_build(num_joint_rounds=1), 'stationarity', 2, (206, 208, 0)),
    (_build(num_joint_rounds=1), 'stationarity', 3, (0, 208, 0)),
    # Its server tells who is there what changed, at the end of a round.
    (_build('random_block'), 'stationarity', 3, (0, 208, 0)),
    (_build('random_block', 0.1), 'stationarity', 3, (2, 208, 0)),
    (_build('shared_first'), 'stationarity', 1, (206, 208, 0)),
    (_build('shared_first', 0.1), 'stationarity', 2, (2, 208, 0)),
    (_build('random_block'), 'shared', 1, (206, 206, 1)),
    (_build('random_block'), 'membership', 1, (2, 2, 0)),
    # Who was not there has to be sent theta again.
    (_build('random_block', is_partial=True), 'membership', 1, (208, 2, 0)),
    (_build('shared_first'), 'shared', 1, (206, 206, 1)),
    (_build('shared_first'), 'shared', 2, (0, 206, 1)),
    (_build('shared_first', is_partial=True), 'shared', 2, (206, 206, 1)),
    (_build('shared_first'), 'membership', 2, (206, 0, 0)),
    (_build('shared_first', num_joint_rounds=1), 'membership', 2, (0, 0, 0)),
    (_build(num_joint_rounds=1), 'membership', 2, (206, 0, 0)),
    (_build(num_joint_rounds=1), 'membership', 3, (0, 0, 0)),
  ],
)
def test_costs(exchange, phase, round_num, cost):
  """Two clients; 206 weights in two models."""
  found = _call(exchange, phase, round_num).cost
  assert found == tuple(2 * one for one in cost)


class _ServerState(NamedTuple):
  model_weights: Any
  membership: Any
  affinity_features: Any


def _build_step(weight, **options):
  exchange = membership_exchange.MembershipExchange(
    mixing.build(toys.linear(3), 2, ('all',), 'outputs'),
    'random_block',
    True,
    0,
    membership_descent.MembershipConfig(0.5, **options),
    affinity.LaplacianConfig(weight, 'uniform'),
  )
  return exchange, membership_exchange.build_server_step(exchange, 1.0)


@pytest.mark.parametrize('weight', [0.0, 0.2])
def test_server_steps_on_the_cohort_and_no_further(weight):
  """Clients 0 and 2, then client 0 alone, as client 2's gradient is broken."""
  _, phase = _build_step(weight)
  features = tf.ones([3, 1]) if weight else ()
  state = _ServerState((), tf.constant(_TABLE), features)
  pulls = 2 * weight * (3 * _TABLE - _TABLE.sum(axis=0))
  for is_valid in (True, False):
    slopes = aggregation.Collected(
      tf.constant(_SLOPES), tf.constant([0, 2]), tf.constant([True, is_valid])
    )
    found, metrics = phase.server_update(state, {'membership_gradient': slopes})
    expected = _TABLE.astype(np.float64)
    for row, client in enumerate([0, 2] if is_valid else [0]):
      expected[client] = ppfl_oracle.mirror_step(
        expected[client], _SLOPES[row] + pulls[client], 0.5, 1e-6
      )
    np.testing.assert_allclose(found.membership, expected, rtol=1e-5)
    assert not metrics


@pytest.mark.parametrize('gradient_weight', ['client_weight', 'none'])
def test_a_client_uploads_its_gradient_times_p_i(gradient_weight):
  exchange, phase = _build_step(0.0, gradient_weight=gradient_weight)
  told = OrderedDict(membership=tf.constant([0.3, 0.7]))
  share = 1.0
  if gradient_weight == 'client_weight':
    told['client_weight'] = share = tf.constant(0.25)
  weights = exchange.mixture.initialize(tf.constant([1, 2]))
  data = algorithm.ClientData(
    tf.reshape(tf.range(6.0), [2, 3]), tf.ones([2]), tf.ones([2])
  )
  output = phase.client_work(weights, told, (), data, tf.constant([0, 0]))
  slope, _ = membership_descent.gradient(
    exchange.mixture,
    weights,
    told['membership'],
    data,
    None,
    exchange.membership,
  )
  assert np.abs(slope).min() > 0.1
  np.testing.assert_allclose(
    output.result['membership_gradient'], share * slope, rtol=1e-6
  )
