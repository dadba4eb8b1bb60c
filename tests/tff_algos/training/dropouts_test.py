"""Tests of clients that fail: who, how often, and what a round makes of it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, running_sum, toys
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.runtimes import debug_runtime
from tff_algos.training import dropouts, loop, simulation


def _population(num_clients):
  return algorithm_lib.Population(
    tuple(f'c{i:03d}' for i in range(num_clients)),
    np.ones(num_clients, np.int64),
  )


def _call(num_clients, phase='train'):
  indices = np.arange(num_clients, dtype=np.int32)[::-1]
  return algorithm_lib.PhaseCall(
    phase,
    indices,
    {'own': 10 * indices, 'pair': (indices, np.zeros([num_clients, 2]))},
    algorithm_lib.Cost(70, 10 * num_clients, 7),
  )


def _drop(num_clients, rate, phase='train', round_num=1, seed=0):
  return dropouts.drop(
    _call(num_clients, phase), _population(num_clients), round_num, seed, rate
  )


def test_without_a_rate_the_call_stays_what_it_is():
  call = _call(5)
  assert dropouts.drop(call, _population(5), 1, 0, 0.0) is call
  nobody = _call(0)
  assert dropouts.drop(nobody, _population(0), 1, 0, 0.5) is nobody


def test_inputs_and_uplink_are_those_of_who_is_left():
  call = _drop(9, 0.5)
  left = call.client_indices
  assert 0 < len(left) < 9
  assert left.dtype == np.int32
  np.testing.assert_array_equal(call.client_inputs['own'], 10 * left)
  np.testing.assert_array_equal(call.client_inputs['pair'][0], left)
  assert call.client_inputs['pair'][1].shape == (len(left), 2)
  assert call.cost == (70, 10 * len(left), 7)


def test_who_fails_follows_from_seed_phase_round_and_client():
  """By the same hash, taken by hand; so no order of clients matters."""
  for phase, round_num, seed in (('train', 1, 0), ('score', 3, 5)):
    left = _drop(40, 0.25, phase, round_num, seed).client_indices
    for i in range(40):
      word = seeds.derive_seed(
        seed, f'dropout/{phase}', round_num, f'c{i:03d}'
      )[0]
      assert (i in left) == (int(word) % 2**32 >= 2**30)
  drawn = {
    tuple(_drop(40, 0.25, *arguments).client_indices)
    for arguments in (
      ('train', 1, 0), ('score', 1, 0), ('train', 2, 0), ('train', 1, 1)
    )
  }  # fmt: skip
  assert len(drawn) == 4


@pytest.mark.parametrize('rate', [0.1, 0.7])
def test_the_rate_is_the_chance(rate):
  """4,000 clients within 5 standard errors: false alarms below 1e-6."""
  lost = 4000 - len(_drop(4000, rate).client_indices)
  assert abs(lost - 4000 * rate) < 5 * (4000 * rate * (1 - rate)) ** 0.5


def test_a_restricted_call_costs_the_share_of_the_available_clients():
  call = _call(5)
  assert dropouts.restrict(call, np.ones(5, bool)) is call
  left = dropouts.restrict(call, np.array([1, 0, 0, 1, 0], bool))
  assert left.client_indices.tolist() == [3, 0]
  assert left.client_inputs['own'].tolist() == [30, 0]
  assert left.cost == (28, 20, 2)
  nobody = dropouts.restrict(call, np.zeros(5, bool))
  assert nobody.client_indices.size == 0
  assert nobody.cost == (0, 0, 0)


def _seed_that_leaves(clients, population, rate):
  """Returns the first seed that drops all others in round 1."""
  everyone = running_sum.phase_call(np.arange(2), [1, 1])
  for seed in range(100):
    call = dropouts.drop(everyone, population, 1, seed, rate)
    if call.client_indices.tolist() == clients:
      return seed
  raise AssertionError('no seed drops these clients')


def _run_round(tmp_path, left, plan_round=None):
  """Runs round 1 of clients that hold 1 and 2 + 3, of whom some are left."""
  algorithm = running_sum.algorithm()
  if plan_round:
    algorithm = dataclasses.replace(algorithm, plan_round=plan_round)
  source = running_sum.source([1.0], [2.0, 3.0])
  seed = _seed_that_leaves(left, source.population, 0.5)
  store = loop.build_store(algorithm, source.population, 0, tmp_path, 'memory')
  start = loop.initial_server_state(algorithm, 2, 0)
  with debug_runtime.DebugRuntime(algorithm, 2) as runtime:
    state, metrics = loop.run_round(
      algorithm, runtime, source, store, start, 1, seed, 0.5
    )
  store.commit()
  return start, state, store.load(np.arange(2)), metrics


def test_a_client_that_fails_is_in_no_sum_and_keeps_its_state(tmp_path):
  _, state, client_states, metrics = _run_round(tmp_path, [1])
  assert (state.total, state.mean) == (5, 5)
  np.testing.assert_array_equal(state.said, [0, 5])
  assert client_states.num_turns.tolist() == [0, 1]
  assert metrics['clients/dropped'] == 1
  assert metrics['add/num_said'] == 1
  costs = [metrics[f'cost/{name}'] for name in algorithm_lib.Cost._fields]
  assert costs == [1, 1, 3]


def test_a_phase_that_loses_everybody_changes_nothing(tmp_path):
  learnt = []

  def plan_round(server_state, population, round_num, seed):
    everyone = np.arange(population.num_clients)
    learnt.append((yield running_sum.phase_call(everyone, [1, 1])))
    yield running_sum.phase_call(everyone[:0], np.zeros(0))

  start, state, client_states, metrics = _run_round(tmp_path, [], plan_round)
  tf.nest.map_structure(np.testing.assert_array_equal, state, start)
  # The plan goes on with the state that it knows.
  tf.nest.map_structure(np.testing.assert_array_equal, learnt, [start])
  assert client_states.num_turns.tolist() == [0, 0]
  assert metrics['clients/dropped'] == 2
  assert metrics['clients/invalid'] == 0
  assert metrics['cost/downlink_floats'] == 2
  assert metrics['cost/uplink_floats'] == 2
  assert not any(name.startswith('add/') for name in metrics)


def _round(name, rate, seed=0, number=1, is_available=None, **options):
  """Returns the start and the runs of a round on logistic regressions."""
  section = contract.section(name, 'logistic') | options
  algorithm = registry.build_algorithm(
    registry.parse_config(section), toys.logistic()
  )
  source = contract.build_source()
  server_state, client_states = simulation.initial_states(
    algorithm, source.population, seed
  )
  with debug_runtime.DebugRuntime(algorithm, len(contract.SIZES)) as runtime:
    runs = loop.run_phases(
      algorithm,
      runtime,
      source,
      simulation.ClientStates(client_states),
      server_state,
      round_num=number,
      seed=seed,
      dropout_rate=rate,
      is_available=is_available,
    )
    return server_state, {run.planned.purpose: run for run in runs}


@pytest.mark.parametrize('number', [1, 2])
@pytest.mark.parametrize('name', ['brain_torrent', 'cmfl'])
def test_a_round_without_available_clients_has_no_call(name, number):
  nobody = np.zeros(len(contract.SIZES), bool)
  assert _round(name, 0.0, number=number, is_available=nobody)[1] == {}


def test_the_committee_adopts_without_dropout():
  """With a seed by which both members would drop out of the adoption alone."""
  start, runs = _round('cmfl', 0.5, seed=6)
  trained, adopted = runs['train'], runs['adopt']
  members = adopted.call.client_indices
  assert members.tolist() == [3, 4]
  assert trained.call.client_indices.tolist() == [2, 3, 4]
  population = contract.build_source().population
  dropped = dropouts.drop(adopted.planned, population, 1, 6, 0.5)
  assert not dropped.client_indices.size
  agreed = adopted.server_state.agreed.model_weights['kernel']
  proposed = trained.server_state.proposed.model_weights['kernel']
  np.testing.assert_array_equal(agreed, proposed)
  assert np.abs(agreed - start.agreed.model_weights['kernel']).max() > 0.1


def test_the_objective_of_ppfl_is_measured_without_dropout():
  measured = [
    _round('ppfl', rate, stationarity_interval=1)[1]['stationarity']
    for rate in (0.0, 0.9)
  ]
  np.testing.assert_equal(*(one.output.server_metrics for one in measured))


def test_every_center_of_kmeans_is_trained_at_any_rate():
  start, runs = _round(
    'ifca', 0.9, num_clusters=3, initialization={'mode': 'k-means++'}
  )
  final = runs['seed_centers'].server_state
  for before, after in zip(
    start.cluster_models['kernel'], final.cluster_models['kernel'], strict=True
  ):
    assert not np.allclose(before, after)
