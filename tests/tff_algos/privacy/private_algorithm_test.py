"""Sampling, account and budget of private algorithms."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.privacy import (
  accounting,
  mechanism,
  private_algorithm,
  private_phase,
  releases,
)
from tff_algos.training import loop, moved_states

_poisson = accounting.Participation
_TREE = {'rounds_per_epoch': 4}
_FACTS = private_algorithm.Facts(4, 10, '')


def _build(name='fed_avg', **options):
  section = {**contract.section(name, 'logistic'), 'cohort_size': 0, **options}
  if name == 'ppfl':
    section.update(laplacian={'weight': 0.0}, stationarity_interval=0)
    section['membership'] = {'gradient_weight': 'none'}
  return registry.build_algorithm(
    registry.parse_config(section), toys.logistic()
  )


def _private(algorithm, facts=_FACTS, **options):
  config = mechanism.PrivacyConfig(**{'noise_multiplier': 1.0, **options})
  return private_algorithm.make_private(algorithm, config, facts)


def _calls(algorithm, population, num_rounds):
  state = algorithm.init_server_state(tf.constant([0, 0]), len(population[0]))
  return [
    next(algorithm.plan_round(state, population, round_num, 3))
    for round_num in range(1, num_rounds + 1)
  ]


def test_privacy_that_is_off_changes_nothing():
  algorithm = _build()
  assert _private(algorithm, noise_multiplier=0.0) is algorithm


# Those whose means come for free: no field but means, all clients called.
@pytest.mark.parametrize(
  'name', ['ditto', 'fed_em', 'l2gd', 'per_fed_avg', 'ppfl']
)
def test_a_private_round_of_other_algorithms_is_finite(name):
  algorithm = _private(_build(name) if name != 'l2gd' else _l2gd())
  state, _, _ = toys.run_rounds(algorithm, contract.build_source(), 1)
  assert state.extra.num_releases == 1
  assert all(np.isfinite(leaf).all() for leaf in tf.nest.flatten(state))


def _l2gd():
  section = contract.section('l2gd', 'logistic')
  return registry.build_algorithm(
    registry.parse_config(section), toys.logistic()
  )


def test_clients_are_drawn_independently_with_the_probability():
  """False alarm: five deviations, below 1e-6, for another seed."""
  num_clients, prob, num_rounds = 400, 0.2, 25
  population = algorithm_lib.Population(
    tuple(f'c{i}' for i in range(num_clients)), np.ones(num_clients, int)
  )
  facts = private_algorithm.Facts(num_clients, num_rounds, '')
  calls = _calls(
    _private(_build(), facts, sampling_prob=prob), population, num_rounds
  )
  sizes = [len(call.client_indices) for call in calls]
  trials = num_clients * num_rounds
  deviation = (trials * prob * (1 - prob)) ** 0.5
  assert abs(sum(sizes) - trials * prob) < 5 * deviation
  assert len({*sizes}) > 5  # Not of a fixed size.
  assert all(call.client_inputs.takes_part.all() for call in calls)
  whole = _calls(_build(), population, 1)[0].cost
  assert calls[0].cost.local_solves == sizes[0]
  assert calls[0].cost.uplink_floats == (
    whole.uplink_floats * sizes[0] // num_clients
  )


def _turns(algorithm, population, seed, releases_so_far):
  state = _after(algorithm, releases_so_far)
  call = next(
    algorithm.plan_round(state, population, releases_so_far + 1, seed)
  )
  takes_part = call.client_inputs.takes_part
  return {population.client_ids[i] for i in call.client_indices[takes_part]}


def test_each_client_takes_part_once_an_epoch_in_a_fixed_order():
  population = _population(40)
  algorithm = _private(_build(), private_algorithm.Facts(40, 8, ''), **_TREE)
  rounds = [_turns(algorithm, population, 3, n) for n in range(8)]
  for epoch in (rounds[:4], rounds[4:]):
    assert sorted(sum(map(list, epoch), [])) == sorted(population.client_ids)
  assert rounds[:4] == rounds[4:]
  assert min(map(len, rounds)) > 1


def _population(num_clients):
  client_ids = tuple(f'c{i}' for i in range(num_clients))
  return algorithm_lib.Population(client_ids, np.ones(num_clients, int))


def _start(run, before=None, **options):
  """Returns the first state of a run, which may continue another one."""
  algorithm = _private(_build(), private_algorithm.Facts(40, 8, run), **options)
  state = loop.initial_server_state(algorithm, 40, 0)
  if before is None:
    return algorithm, state
  moves = moved_states.Moves(np.arange(40, dtype=np.int32), 40)
  carrier = moved_states.Carrier(
    algorithm.carry, moves, moved_states.Departed(), np.ones(40, bool), False
  )
  return algorithm, carrier.move(before, state)


@pytest.mark.parametrize('options', [{'sampling_prob': 0.5}, _TREE])
def test_noise_and_cohorts_of_runs_on_other_data_are_independent(options):
  """False alarm: below 1e-6, that a cohort is drawn twice, for another seed."""
  _, before = _start('a', **options)
  before = before._replace(
    extra=before.extra._replace(
      clip_norm=np.float32(3), num_releases=np.int32(2)
    )
  )
  later = before._replace(extra=before.extra._replace(num_releases=np.int32(3)))
  runs = [
    _start('a', **options),
    _start('b', **options),
    (_start('a', **options)[0], before),
    _start('b', before, **options),
    _start('c', before, **options),
    _start('c', later, **options),
  ]
  draws = [private_phase._draw(s.extra, 0, 3).numpy().tolist() for _, s in runs]
  assert len({*map(tuple, draws)}) == len(runs)
  cohorts = [
    next(a.plan_round(s, _population(40), 5, 0)).client_indices
    for a, s in runs[1:]
  ]
  assert len({*map(tuple, cohorts)}) == len(cohorts)
  _, again = _start('c', later, **options)
  tf.nest.map_structure(np.testing.assert_array_equal, again, runs[-1][1])
  assert again.extra.clip_norm == 3
  # A tree, which the other run may grow on, is not continued.
  assert again.extra.num_releases == (4 if options is _TREE else 3)


def test_the_account_of_a_fixed_order_is_that_of_trees():
  algorithm = _private(_build(), **_TREE)
  found = algorithm.account.metrics(_after(algorithm, 7))
  participation = accounting.Participation(epoch_releases=4)
  assert found == {
    'privacy/epsilon': accounting.epsilon(1.0, participation, 7, 1e-5)
  }


def test_nobody_drawn_is_a_release_of_noise():
  source = contract.build_source()
  algorithm = _private(_build(), sampling_prob=1e-9)
  (call,) = _calls(algorithm, source.population, 1)
  assert call.client_inputs.takes_part.tolist() == [False]
  state, _, _ = toys.run_rounds(algorithm, source, 1)
  assert state.extra.num_releases == 1


@pytest.mark.parametrize(
  ('options', 'facts', 'text'),
  [
    ({'cohort_size': 3}, _FACTS, 'samples 3 of 4 clients by itself'),
    ({}, private_algorithm.Facts(5, 10, ''), '4 clients are available'),
  ],
)
def test_other_samplers_are_refused(options, facts, text):
  algorithm = _private(_build(**options), facts)
  with pytest.raises(errors.ConfigError, match=text):
    _calls(algorithm, contract.build_source().population, 1)


def test_pfedme_of_all_clients_that_counts_a_few_is_refused():
  section = contract.section('pfedme', 'logistic')
  algorithm = registry.build_algorithm(
    registry.parse_config({**section, 'cohort_size': 3}), toys.logistic()
  )
  with pytest.raises(errors.ConfigError, match='samples 3 of 4 clients'):
    _calls(_private(algorithm), contract.build_source().population, 1)


def test_fed_soft_samples_by_importance_unless_all_train():
  algorithm = _private(_build_fed_soft('without_replacement'))
  with pytest.raises(errors.ConfigError, match="selection 'weighted_full'"):
    toys.run_rounds(algorithm, contract.build_source(), 1)


def _build_fed_soft(selection):
  section = contract.section('fed_soft', 'logistic')
  return registry.build_algorithm(
    registry.parse_config({**section, 'selection': selection}), toys.logistic()
  )


def test_fed_soft_sends_no_share_of_the_importance_of_all_clients():
  algorithm = _private(_build_fed_soft('weighted_full'))
  population = contract.build_source().population
  state = _after(algorithm, 0)
  plan = algorithm.plan_round(state, population, 1, 3)
  next(plan)
  importance = np.array([[0.5, 0.25]] * 5, np.float32)
  own = state.server_state._replace(importance_weights=importance)
  call = plan.send(state._replace(server_state=own))
  given = call.client_inputs.client_input
  np.testing.assert_array_equal(given.importance_weights, importance[:4])
  np.testing.assert_array_equal(given.cluster_weights, importance[:4])


def _after(algorithm, num_releases):
  state = algorithm.init_server_state(tf.constant([0, 0]), 4)
  return state._replace(extra=state.extra._replace(num_releases=num_releases))


def test_epsilon_is_that_of_the_releases_in_the_state():
  algorithm = _private(_build(), sampling_prob=0.3)
  found = algorithm.account.metrics(_after(algorithm, 7))
  assert found == {
    'privacy/epsilon': accounting.epsilon(1.0, _poisson(0.3), 7, 1e-5)
  }
  assert not algorithm.account.is_spent(_after(algorithm, 10_000))


def test_noise_that_exceeds_the_target_in_one_round_is_refused():
  one = accounting.epsilon(0.3, accounting.Participation(0.5), 1, 1e-5)
  options = {'noise_multiplier': 0.3, 'sampling_prob': 0.5}
  _private(_build(), target_epsilon=one, **options)
  with pytest.raises(
    errors.ConfigError, match=f'a single round has an epsilon of {one:.3g} with'
  ):
    _private(_build(), target_epsilon=0.99 * one, **options)


def test_releases_in_two_phases_are_refused(monkeypatch):
  algorithm = _build()
  train = algorithm.phases['train']
  both = {'train': train, 'again': train._replace(name='again')}
  declared = dict.fromkeys(
    ('train.local_weights', 'again.local_weights'), releases.Summed()
  )
  monkeypatch.setitem(releases.RELEASES, 'fed_avg', declared)
  with pytest.raises(errors.ConfigError, match='in the phases again, train,'):
    _private(dataclasses.replace(algorithm, phases=both))


def test_noise_that_cannot_be_accounted_for_is_refused_before_a_round():
  with pytest.raises(errors.ConfigError, match='noise multiplier of 0.05 cann'):
    _private(_build(), noise_multiplier=0.05)


def test_training_ends_before_the_budget_is_exceeded():
  algorithm = _private(_build(), noise_multiplier=3.0, target_epsilon=3.0)
  is_spent = [
    algorithm.account.is_spent(_after(algorithm, n)) for n in range(9)
  ]
  last = is_spent.index(True)
  assert last > 1
  assert accounting.epsilon(3.0, _poisson(), last, 1e-5) <= 3.0
  after = accounting.epsilon(3.0, _poisson(), last + 1, 1e-5)
  assert after > 3.0
  found = algorithm.account.metrics(_after(algorithm, last))
  assert found['privacy/next_epsilon'] == after


def test_a_solved_noise_lasts_for_the_rounds():
  algorithm = _private(_build(), noise_multiplier=0.0, target_epsilon=2.0)
  account = algorithm.account
  assert not account.is_spent(_after(algorithm, 9))
  assert account.is_spent(_after(algorithm, 10))
  longer = dataclasses.replace(account.config, num_rounds=20)
  assert longer.noise_multiplier == account.config.noise_multiplier
