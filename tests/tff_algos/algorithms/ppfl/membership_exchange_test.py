"""Tests of what travels beside the weights: who, what and what it costs."""

import dataclasses

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.algorithms.ppfl import (
  affinity,
  membership_descent,
  membership_exchange,
  mixing,
)
from tff_algos.core import algorithm

_POPULATION = algorithm.Population(
  ('a', 'b', 'c', 'd'), np.array([3, 0, 5, 2], np.int64)
)
_DRAWN = np.array([0, 3], np.int32)
_MIXTURE = mixing.build(toys.mlp(), 2, ('all',), 'outputs')
_PHASES = ('count_labels', 'stationarity', 'shared', 'membership', 'joint')


def _build(
  schedule='alternating', weight=0.0, kind='cosine', is_partial=False, **options
):
  return membership_exchange.Traffic(
    _MIXTURE,
    schedule,
    is_partial,
    options.pop('num_joint_rounds', 0),
    membership_descent.MembershipConfig(**options),
    affinity.LaplacianConfig(weight, kind),
  )


def _fields(traffic):
  return {phase: list(traffic.client_input(phase)) for phase in _PHASES}


def _phases(traffic, round_num, shared_prob=0.5, interval=0):
  return traffic.phases(round_num, 0, shared_prob, interval)


def test_phases_of_a_round():
  assert _phases(_build(), 1) == ['joint']
  freezing = [_phases(_build(num_joint_rounds=2), number) for number in (2, 3)]
  assert freezing == [['joint'], ['membership']]
  counting = _build('shared_first', 0.1)
  assert _phases(counting, 1, interval=2) == [
    *('count_labels', 'stationarity', 'shared', 'membership')
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
def test_clients_without_examples_move_if_the_penalty_reaches_them(
  kind, is_partial, moved
):
  traffic = _build(weight=0.1, kind=kind, is_partial=is_partial)
  # Of a full round, those that have examples were drawn.
  drawn = _DRAWN if is_partial else np.array([0, 2, 3], np.int32)
  moved = drawn if kind == 'cosine' else moved
  for phase, expected in (
    ('count_labels', [0, 2, 3]),
    ('shared', drawn),
    ('membership', moved),
    ('joint', moved),
  ):
    found = traffic.cohort(phase, drawn, _POPULATION)
    assert found.tolist() == list(expected)
    assert found.dtype == np.int32


class _State:
  membership = np.array(
    [[0.5, 0.5], [0.5, 0.5], [1, 0], [0.2, 0.8]], np.float32
  )
  affinity_features = np.ones((4, 1), np.float32)


def _call(traffic, phase, round_num=1):
  weights = np.array([0.3, 0, 0.5, 0.2], np.float32)
  return traffic.call(phase, _State, _DRAWN, weights, round_num)


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
  traffic = dataclasses.replace(
    _build(), laplacian=affinity.LaplacianConfig(0.1, 'uniform', 'degree')
  )
  for phase, expected in (
    ('stationarity', [[-0.04, 0.04], [-0.28, 0.28]]),
    ('joint', [[0.2, 0.2], [0.08, 0.32]]),
  ):
    inputs = _call(traffic, phase).client_inputs
    np.testing.assert_allclose(inputs['penalty_gradient'], expected, atol=1e-6)


@pytest.mark.parametrize(
  ('traffic', 'phase', 'round_num', 'cost'),
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
def test_costs(traffic, phase, round_num, cost):
  """Two clients; 206 weights in two models."""
  found = _call(traffic, phase, round_num).cost
  assert found == tuple(2 * one for one in cost)
