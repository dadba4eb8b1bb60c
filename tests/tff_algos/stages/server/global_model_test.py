"""Tests of what algorithms with one model have in common."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying
from tff_algos.stages.server import global_model

_POPULATION = algorithm_lib.Population(('a', 'b', 'c'), np.array([3, 0, 2]))
_CARRY = carrying.Carry({})


class _Holder(NamedTuple):
  model_weights: dict
  more: int


def test_the_global_model_serves_everybody():
  model = toys.linear(2)
  algorithm = global_model.build_algorithm(
    'toy',
    model,
    init_server_state=lambda seed, num_clients: _Holder(
      model.initialize(seed), num_clients
    ),
    phases={},
    plan_round=None,
    carry=_CARRY,
  )
  state = algorithm.init_server_state(tf.constant([1, 2]), 3)
  assert state.more == 3
  assert algorithm.init_client_state(None, None) == ()
  served = algorithm.personalized_weights(state, (), 2)
  assert served is state.model_weights
  stacked = algorithm.cluster_weights(state)['kernel']
  np.testing.assert_array_equal(stacked, served['kernel'][tf.newaxis])
  assert algorithm.membership(state, (), 2).numpy().tolist() == [1]


def test_clients_may_have_models_of_their_own_beside_the_global_one():
  algorithm = global_model.build_algorithm(
    'toy',
    toys.linear(2),
    init_server_state=None,
    phases={},
    plan_round=None,
    carry=_CARRY,
    global_weights=lambda server_state: server_state['global'],
    personalized_weights=lambda server_state, client_state, client_index: (
      server_state['global']['w'] + client_state
    ),
  )
  state = {'global': {'w': tf.constant([3.0])}}
  assert algorithm.cluster_weights(state)['w'].numpy().tolist() == [[3]]
  assert algorithm.personalized_weights(state, 1.0, 0).numpy().tolist() == [4]


def test_a_local_phase_uploads_nothing_and_changes_no_state():
  state = _Holder({'kernel': 1}, 2)
  phase = global_model.local_phase('refit', None)
  assert (phase.name, phase.aggregation) == ('refit', {})
  assert phase.make_message(state) == {'kernel': 1}
  assert phase.server_update(state, {}) == (state, {})
  call = global_model.local_call('refit', _POPULATION.clients_with_examples, 7)
  assert (call.phase, call.client_indices.tolist()) == ('refit', [0, 2])
  assert call.cost == (14, 0, 2)


def test_the_received_model_is_found_in_both_kinds_of_message():
  weights = {'kernel': 1}
  assert global_model.received_weights(weights) is weights
  assert global_model.received_weights(_Holder(weights, 0)) is weights


def test_uploads_are_the_model_and_an_update():
  uploads = global_model.two_uploads('change')
  message = _Holder({'w': 3.0}, 1)
  result = {'change': {'w': tf.constant([1.0, 2])}}
  assert uploads['local_weights'](message, (), result) == {'w': 3.0}
  start = uploads['change'](message, (), result)
  np.testing.assert_array_equal(start['w'], [0, 0])
