"""Tests of rounds in memory, against the loop of trainings."""

import dataclasses
import re

import numpy as np
import pytest

from tests.testing import contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, seeds
from tff_algos.data import schema
from tff_algos.runtimes import client_sources, debug_runtime
from tff_algos.runtimes import registry as runtimes
from tff_algos.stages.client import local_training
from tff_algos.training import client_state_store, loop, simulation

_SOURCE = contract.build_source()
_TRAINING = {'num_local_epochs': 2, 'batch_size': 3}


def _simulate(name='ditto', model=None, seed=3, **options):
  section = {'name': name, 'local_training': _TRAINING, **options}
  algorithm = registry.build_algorithm(
    registry.parse_config(section), model or toys.logistic()
  )
  runtime = debug_runtime.DebugRuntime(algorithm, len(contract.SIZES))
  return simulation.Simulation(algorithm, _SOURCE, runtime, seed)


def test_rounds_are_those_of_a_training():
  """Both states, bit for bit, of an algorithm that keeps states at clients."""
  run = _simulate(cohort_size=2)
  store = loop.build_store(
    run.algorithm, _SOURCE.population, 3, '', client_state_store.MEMORY
  )
  state = loop.initial_server_state(run.algorithm, len(contract.SIZES), 3)
  for round_num in (1, 2):
    assert len(run.run_round()) == 2
    state, _ = loop.run_round(
      run.algorithm, run.runtime, _SOURCE, store, state, round_num, 3
    )
    store.commit()
  np.testing.assert_equal(run.server_state, state)
  everyone = _SOURCE.population.all_clients
  np.testing.assert_equal(
    simulation.ClientStates(run.client_states).load(everyone),
    store.load(everyone),
  )


@pytest.mark.parametrize('name', ['vectorized', 'tff'])
def test_a_runtime_of_another_algorithm_is_refused(name):
  """Its graphs, kept by names of phases, would train that one."""
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'fed_avg', 'local_training': _TRAINING}),
    toys.logistic(),
  )
  config = runtimes.RuntimeConfig(name=name)
  with runtimes.build_runtime(config, algorithm, len(contract.SIZES)) as other:
    run = _simulate('fed_avg', cohort_size=2)
    mixed = simulation.Simulation(run.algorithm, _SOURCE, other, 3)
    with pytest.raises(errors.ConfigError, match='not that of the algorithm'):
      mixed.run_round()


def test_a_client_that_is_not_there_is_named_also_beside_the_available():
  run = _simulate('fed_avg', cohort_size=2)

  def plan_round(*_):
    yield algorithm_lib.PhaseCall(
      'train', np.array([99]), (), algorithm_lib.Cost(0, 0)
    )

  wrong = dataclasses.replace(run.algorithm, plan_round=plan_round)
  run = simulation.Simulation(wrong, _SOURCE, run.runtime, 3)
  with pytest.raises(errors.StageTypeError, match='client_index 99'):
    run.run_round(['c002'])


def test_cohorts_are_sampled_from_the_available_clients():
  run = _simulate('fed_avg', cohort_size=2)
  for _ in range(3):
    (one,) = run.run_round(['c002', 'c004'])
    assert one.planned.client_indices.tolist() == [2, 4]


@pytest.mark.parametrize(
  ('model', 'x', 'y', 'words'),
  [
    ('linear', np.ones([3, 4]), np.arange(3), 'y {} int32 [3] {} float32 [n]'),
    ('logistic', np.ones([3, 4]), np.ones(3), 'y {} float32 [3] {} int32 [n]'),
    (
      'linear',
      np.eye(4, dtype=int),
      np.ones(4),
      'x {} int32 [4, 4] {} float32',
    ),
    (
      'linear',
      np.ones([3, 5]),
      np.ones(3),
      'x {} float32 [3, 5] {} float32 [n, 4]',
    ),
    (
      'linear',
      np.eye(4),
      np.ones([4, 1]),
      'y {} float32 [4, 1] {} float32 [n]',
    ),
  ],
)
def test_arrays_that_do_not_fit_the_model_are_refused(model, x, y, words):
  model = toys.linear(4) if model == 'linear' else toys.logistic((4,))
  dtype = np.int32 if model.task == 'classification' else np.float32
  source = client_sources.ArraySource(
    {'ann': (np.ones([2, 4]), np.zeros(2, dtype)), 'bob': (x, y)}
  )
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'fed_avg', 'cohort_size': 0}), model
  )
  words = words.format(
    "of client 'bob' is", f'but the model {model.name!r} takes'
  ).replace('] but', '], but')
  with pytest.raises(errors.ConfigError, match=re.escape(words)):
    simulation.Simulation(algorithm, source, runtime=None)


def test_classes_that_the_model_has_not_are_refused():
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'fed_avg', 'cohort_size': 0}),
    toys.logistic((4,)),
  )
  ones, classes = np.ones([3, 4]), toys.logistic((4,)).num_outputs
  for labels in ([1, 2, classes], [-1, 0, 0]):
    source = client_sources.ArraySource({'ann': (ones, labels)})
    with pytest.raises(
      errors.ConfigError,
      match=f"'ann' has classes from {min(labels)} to {max(labels)}, but",
    ):
      simulation.Simulation(algorithm, source, runtime=None)


def test_examples_may_be_replaced_by_others_of_the_same_clients():
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'fed_avg', 'cohort_size': 0}),
    toys.linear(4),
  )

  def source(*client_ids, features=4):
    pair = np.ones([3, features]), np.ones(3)
    return client_sources.ArraySource(dict.fromkeys(client_ids, pair))

  run = simulation.Simulation(algorithm, source('a', 'b'), runtime=None)
  other = source('a', 'b')
  run.source = other
  with pytest.raises(errors.ConfigError, match='in another order'):
    run.source = source('b', 'a')
  with pytest.raises(errors.ConfigError, match="x of client 'a'"):
    run.source = source('a', 'b', features=5)
  assert run.source is other


def test_a_start_has_a_state_of_every_client():
  run = _simulate()
  for states in (run.client_states[:-1], [*run.client_states, None]):
    with pytest.raises(
      errors.ConfigError,
      match=f'start has {len(states)} client states, but source has 5 clients',
    ):
      simulation.Simulation(
        run.algorithm, _SOURCE, run.runtime, start=(run.server_state, states)
      )


def test_only_available_clients_take_part():
  run = _simulate('fed_avg', cohort_size=0)
  names = ['c003', 'c001', 'c000']  # The second has no example.
  (first,) = run.run_round(names)
  assert first.call.client_indices.tolist() == [0, 3]
  assert first.planned is first.call
  (second,) = run.run_round()
  assert second.call.client_indices.tolist() == [0, 2, 3, 4]
  assert run.round_num == 2
  with pytest.raises(errors.ConfigError, match="'c9', which is no client id"):
    run.run_round(['c000', 'c9'])
  assert run.round_num == 2


def test_weights_in_the_objective_count_clients_that_are_not_available():
  """p_i of PPFL, among 24 examples of all clients."""
  run = _simulate('ppfl', membership={'gradient_weight': 'client_weight'})
  (one,) = run.run_round(['c003', 'c004'])
  np.testing.assert_allclose(
    one.call.client_inputs['client_weight'], [12 / 24, 4 / 24]
  )


@pytest.mark.parametrize(
  ('name', 'options'),
  [
    ('l2gd', {}),
    ('gossip', {'num_segments': 2, 'num_replicas': 1}),
    ('per_fed_avg', {'cohort_size': 0, 'num_local_steps': 1}),
    ('ppfl', {'laplacian': {'weight': 0.1, 'affinity': 'uniform'}}),
    ('cfl', {}),
    ('fine_tuning', {'cohort_size': 0}),
  ],
)
def test_examples_of_other_clients_are_not_read(name, options):
  """Of algorithms that call all clients: others' states and data are inert."""
  section = contract.section(name, 'logistic') | options
  algorithm = registry.build_algorithm(
    registry.parse_config(section), toys.logistic()
  )
  runtime = debug_runtime.DebugRuntime(algorithm, len(contract.SIZES))
  names, found = ['c002', 'c003'], []
  for source in (_SOURCE, contract.build_source(c4=np.ones((4, 4, 4, 1), 'f'))):
    run = simulation.Simulation(algorithm, source, runtime, seed=3)
    before = list(run.client_states)
    for one in run.run_round(names) + run.run_round(names):
      assert set(one.call.client_indices) <= {2, 3}
    for index in (0, 1, 4):
      np.testing.assert_equal(run.client_states[index], before[index])
    found.append(run.server_state)
  np.testing.assert_equal(*found)


def test_a_round_that_fails_changes_nothing(monkeypatch):
  """In its second phase call, after the personal models have changed."""
  run = _simulate(cohort_size=2)
  before = run.server_state, list(run.client_states)
  monkeypatch.setitem(
    run.algorithm.phases,
    'train',
    run.algorithm.phases['train']._replace(server_update=None),
  )
  with pytest.raises(errors.RuntimeFailureError, match="'server_update'"):
    run.run_round()
  assert (run.server_state, run.client_states) == before
  assert run.round_num == 0


def test_initial_weights_and_batches_reproduce_a_round():
  """An oracle of least squares in float64, from what the hooks say."""
  source = toys.linear_clients(np.ones((1, 2)), np.ones((2, 1)), [5, 4])
  start = np.array([[0.5], [-1.0]], np.float32)
  model = dataclasses.replace(
    toys.linear(2), initialize=lambda seed: {'kernel': start}
  )
  options = {'batch_size': 2, 'optimizer': {'learning_rate': 0.1}}
  section = registry.parse_config(
    {'name': 'fed_avg', 'cohort_size': 1, 'local_training': options}
  )
  algorithm = registry.build_algorithm(section, model)
  run = simulation.Simulation(
    algorithm, source, debug_runtime.DebugRuntime(algorithm, 2)
  )
  ((_, call, _, state),) = run.run_round()
  (client,) = call.client_indices
  x, y, _ = source.examples(client)
  drawn = local_training.draw_batches(
    run.client_seed(call, source.population.client_ids[client]),
    np.ones(len(y), np.float32),
    section.options.local_training,
  )
  expected = start[:, 0].astype(np.float64)
  for rows, mask in zip(drawn.positions, drawn.masks, strict=True):
    rows = rows.numpy()[mask.numpy() > 0]
    slope = x[rows].T @ (x[rows] @ expected - y[rows]) / len(rows)
    expected = expected - 0.1 * 2 * slope
  np.testing.assert_allclose(
    state.model_weights['kernel'][:, 0], expected, rtol=1e-5
  )


def test_placed_rows_are_the_batches_of_an_epoch():
  """Two rounds in which a client's batches are set, as the class describes."""
  source = toys.linear_clients(np.ones((1, 2)), np.ones((1, 1)), [5])
  examples = source.examples(0)
  wanted = [np.array([4, 3, 0, 1, 2]), np.array([1, 0, 4, 2, 3])]
  options = {'batch_size': 2, 'optimizer': {'learning_rate': 0.1}}
  section = registry.parse_config(
    {'name': 'fed_avg', 'cohort_size': 1, 'local_training': options}
  )
  algorithm = registry.build_algorithm(section, toys.linear(2))
  run = simulation.Simulation(
    algorithm, source, debug_runtime.DebugRuntime(algorithm, 1)
  )
  expected = run.server_state.model_weights['kernel'][:, 0].astype(np.float64)
  client_id = source.population.client_ids[0]
  for round_num, order in enumerate(wanted, start=1):
    drawn = local_training.draw_batches(
      run.client_seed('train', client_id, round_num),
      np.ones(5, np.float32),
      section.options.local_training,
    )
    read = drawn.positions.numpy()[drawn.masks.numpy() > 0]
    rows = np.empty(5, int)
    rows[read] = order
    run.source = toys.ToySource(
      [schema.Examples(*(column[rows] for column in examples))]
    )
    run.run_round()
    for batch in np.split(order, [2, 4]):
      x, y = examples.x[batch], examples.y[batch]
      expected = expected - 0.2 * x.T @ (x @ expected - y) / len(batch)
  np.testing.assert_allclose(
    run.server_state.model_weights['kernel'][:, 0], expected, rtol=1e-5
  )


def test_seeds_are_those_of_the_last_round():
  run = _simulate('fed_avg', cohort_size=2)
  for round_num in (1, 2):
    (one,) = run.run_round()
    np.testing.assert_array_equal(
      run.client_seed(one.call, 'c002'),
      seeds.derive_seed(3, 'train', round_num, 'c002'),
    )
