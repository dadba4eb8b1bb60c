"""The algorithm with something beside its state is the algorithm itself."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import continued, contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import carrying
from tff_algos.rounds import extended_state, phase_types
from tff_algos.runtimes import debug_runtime


def _build(name):
  return registry.build_algorithm(
    registry.parse_config(contract.section(name, 'logistic')), toys.logistic()
  )


def _lifted(algorithm):
  return {
    name: extended_state.lift(phase) for name, phase in algorithm.phases.items()
  }


def _extend(algorithm):
  """Counts the calls of phase `train` beside the state."""
  phases = _lifted(algorithm)
  train = phases['train']

  def count(state, aggregates):
    state, metrics = train.server_update(state, aggregates)
    return state._replace(extra=state.extra + 1), metrics

  return extended_state.extend(
    algorithm,
    lambda seed, num_clients: tf.constant(num_clients),
    carrying.KEEP,
    {**phases, 'train': train._replace(server_update=count)},
  )


def _run(algorithm, build_runtime):
  runtime = build_runtime(algorithm, len(contract.SIZES))
  return toys.run_rounds(algorithm, contract.build_source(), 2, runtime=runtime)


# FedSoft plans by what the first phase of the round left in the state.
@pytest.mark.parametrize('name', ['fed_soft', 'cfl'])
def test_the_algorithm_and_its_metrics_are_unchanged(name):
  algorithm = _build(name)
  plain = _run(algorithm, debug_runtime.DebugRuntime)
  extended = _run(_extend(algorithm), debug_runtime.DebugRuntime)
  assert extended[0].extra == len(contract.SIZES) + 2
  without = [
    one._replace(server_state=one.server_state.server_state)
    for one in extended[2]
  ]
  tf.nest.map_structure(
    np.testing.assert_array_equal,
    (plain[0], plain[1], plain[2]),
    (extended[0].server_state, extended[1], without),
  )


@pytest.mark.verify
def test_graphs_agree_with_eager_phases():
  extended = _extend(_build('fed_soft'))
  found, expected = (
    _run(extended, build)[0]
    for build in (toys.graph_runtime, debug_runtime.DebugRuntime)
  )
  tf.nest.map_structure(
    lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5),
    found,
    expected,
  )


def test_what_serves_clients_reads_the_own_state():
  algorithm = _build('ppfl')
  extended = extended_state.extend(
    algorithm,
    lambda seed, num_clients: (),
    carrying.KEEP,
    _lifted(algorithm),
  )
  assert phase_types.check_algorithm(extended, 5).keys() == (
    algorithm.phases.keys()
  )
  own, states = toys.initial_states(
    algorithm, contract.build_source().population
  )
  state = extended_state.ExtendedState(own, ())
  index = tf.constant(2)
  for name in ('personalized_weights', 'membership'):
    tf.nest.map_structure(
      np.testing.assert_array_equal,
      getattr(algorithm, name)(own, states[2], index),
      getattr(extended, name)(state, states[2], index),
    )
  tf.nest.map_structure(
    np.testing.assert_array_equal,
    algorithm.newcomers.weights(own, tf.constant([0.25, 0.75])),
    extended.newcomers.weights(state, tf.constant([0.25, 0.75])),
  )


def test_an_account_reads_the_own_state():
  account = types.SimpleNamespace(
    metrics=lambda state: {'spent': float(state)},
    is_spent=lambda state: state > 2,
  )
  extended = _extend(dataclasses.replace(_build('cfl'), account=account))
  for own, is_spent in ((1, False), (3, True)):
    state = extended_state.ExtendedState(own, 5)
    assert extended.account.metrics(state) == {'spent': own}
    assert extended.account.is_spent(state) == is_spent


def test_a_continued_run_moves_both_parts(tmp_path):
  algorithm = _build('cfl')

  def follow(name, algorithm):
    debug = debug_runtime.DebugRuntime(algorithm, len(contract.SIZES))
    case = types.SimpleNamespace(
      algorithm=algorithm, debug=debug, vectorized=debug
    )
    source = contract.build_source()
    parent = continued.Run(case, tmp_path / name / 'parent', source).train(2)
    # Newcomers choose a cluster by their loss.
    new = continued.population(
      source, ('c000',), n0='c000', n1='c002', n2='c003', n3='c004'
    )
    return parent.follow('child', new).server_state

  plain, extended = (
    follow('plain', algorithm),
    follow('extended', _extend(algorithm)),
  )
  assert len(set(plain.cluster_assignment[1:].tolist())) == 2
  assert extended.extra == len(contract.SIZES) + 2
  tf.nest.map_structure(
    np.testing.assert_array_equal, plain, extended.server_state
  )
