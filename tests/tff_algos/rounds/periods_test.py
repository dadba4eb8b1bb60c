"""Tests of algorithms that take turns on the same states."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, running_sum, toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.rounds import lr_schedule, periods, phase_types
from tff_algos.training import dropouts

_SOURCE = contract.build_source()
_CLIENTS = running_sum.source([1, 2], [10])
_FALLING = lr_schedule.LrScheduleConfig((2, 3), 0.1)
_ONE_FALL = lr_schedule.LrScheduleConfig((2,), 0.1)


def _names(algorithm, num_rounds):
  """Returns the phases of each round, if no plan looks at a state."""
  population = _CLIENTS.population
  return [
    [call.phase for call in algorithm.plan_round(None, population, t, 0)]
    for t in range(1, num_rounds + 1)
  ]


def test_one_algorithm_stays_as_it_is():
  algorithm = running_sum.algorithm()
  assert periods.in_turn([algorithm], lambda round_num: 0) is algorithm


def test_phases_are_named_by_their_period():
  """And what they are for, by the first one's."""
  algorithm = periods.in_turn(
    [running_sum.algorithm() for _ in range(3)], _FALLING.period
  )
  names = ['add', 'add@2', 'add@3']
  assert list(algorithm.phases) == names
  assert [phase.name for phase in algorithm.phases.values()] == names
  assert [algorithm_lib.phase_purpose(name) for name in names] == ['add'] * 3
  assert _names(algorithm, 4) == [['add'], ['add'], ['add@2'], ['add@3']]


def test_states_of_another_type_are_refused():
  other = running_sum.algorithm()
  wider = dataclasses.replace(
    running_sum.algorithm(
      make_message=lambda server_state: server_state['total'],
      server_update=lambda server_state, aggregates: (server_state, {}),
    ),
    init_server_state=lambda seed, num_clients: {'total': tf.constant(0.0)},
  )
  joined = periods.in_turn([other, wider], _FALLING.period)
  with pytest.raises(errors.StageTypeError, match="phase 'add@2'"):
    phase_types.check_algorithm(joined)


def _same_draws(one, other):
  """Whether a dropout hits the same clients in calls of both names."""
  population = algorithm_lib.Population(tuple('abcdefgh'), np.ones(8, np.int64))
  stay = [
    dropouts.drop(
      algorithm_lib.PhaseCall(
        name, np.arange(8, dtype=np.int32), (), algorithm_lib.Cost()
      ),
      population,
      1,
      0,
      0.5,
    ).client_indices.tolist()
    for name in (one, other)
  ]
  return stay[0] == stay[1]


def test_dropouts_go_by_the_purpose():
  assert _same_draws('train', 'train@2')
  assert not _same_draws('train', 'adopt')


def _build(name, rates=lr_schedule.LrScheduleConfig(), attack=None, **more):
  section = {**contract.section(name, 'mlp'), **more}
  algorithm = registry.build_algorithm(
    registry.parse_config(section),
    toys.mlp(),
    schedule=rates,
  )
  config = attacks.AttackConfig(attack or 'none', fraction=0.4 if attack else 0)
  return attacks.attack(algorithm, config, np.arange(5) % 2 == 1)


@pytest.mark.parametrize(
  ('name', 'attack'),
  [
    ('scaffold', None),
    ('pfedme', None),
    ('filter_decomposition', None),
    ('fed_avg', 'sign_flip'),
    ('fed_avg', 'alie'),
  ],
)
def test_rounds_are_those_of_the_algorithm_with_the_rates_of_their_period(
  name, attack
):
  """Bit for bit, whatever clients keep."""
  section = contract.section(name, 'mlp')
  first, second = registry.periods_of(registry.parse_config(section), _ONE_FALL)
  assert first != second
  lowered = _build(name, attack=attack, **config_lib.to_dict(second))
  start = toys.run_rounds(_build(name, attack=attack), _SOURCE, 2)[:2]
  expected = toys.run_rounds(lowered, _SOURCE, 1, start=start, first_round=3)
  found = toys.run_rounds(_build(name, _ONE_FALL, attack), _SOURCE, 3)
  np.testing.assert_equal(found[:2], expected[:2])


def test_a_factor_of_one_changes_no_bit_and_another_does():
  """Of the order in which examples come, say."""
  expected = toys.run_rounds(_build('scaffold'), _SOURCE, 3)
  same = dataclasses.replace(_ONE_FALL, factor=1.0)
  np.testing.assert_equal(
    toys.run_rounds(_build('scaffold', same), _SOURCE, 3)[:2], expected[:2]
  )
  other = toys.run_rounds(_build('scaffold', _ONE_FALL), _SOURCE, 3)
  assert not np.array_equal(
    *(one[0].model_weights['dense_0/kernel'] for one in (other, expected))
  )
