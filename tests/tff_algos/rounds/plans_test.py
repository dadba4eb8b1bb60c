"""Tests of plans that are made of other plans."""

import dataclasses

import numpy as np
import pytest

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.rounds import plans


def _call(name):
  return algorithm_lib.PhaseCall(
    name, np.array([0], np.int32), (), algorithm_lib.Cost()
  )


def _plan(first_state):
  """Calls a phase that is named after the state, until that is 3."""
  state = first_state
  while state < 3:
    state = yield _call(f'after {state}')


@pytest.mark.parametrize('first_state', [0, 2, 3])
def test_calls_are_changed_and_states_sent_back(first_state):
  changed = plans.map_calls(
    _plan(first_state),
    lambda call: dataclasses.replace(call, phase=f'{call.phase}!'),
  )
  seen, calls = [], plans.Calls(changed, first_state)
  for call in calls:
    seen.append(call.phase)
    calls.server_state += 1
  assert seen == [f'after {state}!' for state in range(first_state, 3)]
  assert calls.server_state == 3
