"""The loop over blocks gives what one block of all clients would give."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum
from tff_algos.rounds import phase_types
from tff_algos.runtimes.vectorized import phase_graph
from tff_algos.runtimes.vectorized import rows as rows_lib

_CLIENTS = ([1.0], [2.0, 3.0], [], [4.0, 5.0, 6.0], [7.0])


def _build(clients_per_block, vectorizes=True):
  algorithm = running_sum.algorithm()
  phase = algorithm.phases[running_sum.PHASE]
  types = phase_types.check_algorithm(algorithm, len(_CLIENTS))[phase.name]
  return phase_graph.build_client_graph(
    phase, types, vectorizes, clients_per_block
  )


def _run(work, clients=_CLIENTS):
  source = running_sum.source(*clients)
  call = running_sum.phase_call(range(len(clients)), np.arange(len(clients)))
  cohort = running_sum.cohort(call, source)
  rows, spans = rows_lib.concatenate(cohort.examples(call.client_indices))
  num_clients = len(clients)
  states = running_sum.ClientState(
    np.arange(num_clients, dtype=np.int32), np.zeros((num_clients, 2), 'f')
  )
  loaded = cohort.describe(call.client_indices, False)._replace(
    data=spans, client_state=states
  )
  return work(np.float32(10), rows, loaded)


@pytest.mark.parametrize(
  ('vectorizes', 'clients_per_block'),
  [(False, 1), *((True, size) for size in (1, 5, None))],
)
def test_by_hand(vectorizes, clients_per_block):
  sums, collection, states = _run(_build(clients_per_block, vectorizes))
  said = np.array([11, 15, 10, 25, 17])
  assert sums['fields']['value'] == said.sum()
  assert sums['fields']['mean'].value == 11 + 2 * 15 + 3 * 25 + 17
  assert sums['fields']['mean'].weight == 7
  assert sums['num_invalid'] == 0
  np.testing.assert_array_equal(collection['client_index'], range(5))
  np.testing.assert_array_equal(collection['values']['said'], said)
  np.testing.assert_array_equal(states.num_turns, [1, 2, 3, 4, 5])
  np.testing.assert_array_equal(states.last, np.stack([said, range(5)], 1))


@pytest.mark.parametrize('clients_per_block', [1, 5, None])
def test_not_finite_keeps_its_state_and_is_counted(clients_per_block):
  clients = ([1.0], [np.nan, 3.0], [2.0], [np.inf], [7.0])
  sums, collection, states = _run(_build(clients_per_block), clients)
  assert sums['num_invalid'] == 2
  assert sums['fields']['value'] == 11 + 12 + 17
  np.testing.assert_array_equal(
    collection['is_valid'], [True, False, True, False, True]
  )
  np.testing.assert_array_equal(states.num_turns, [1, 1, 3, 3, 5])


def test_client_without_examples_sees_nothing_of_its_neighbours():
  clients = ([np.nan], [], [1.0, 2.0], [np.inf])
  sums, _, _ = _run(_build(4), clients)
  assert sums['num_invalid'] == 2
  assert sums['fields']['value'] == 10 + 13


def test_several_blocks_of_several_clients():
  clients = [[float(i)] * (i % 3) for i in range(6)]
  whole = _run(_build(None), clients)
  for size in (1, 2, 3, 6):
    tf.nest.map_structure(
      functools.partial(np.testing.assert_allclose, rtol=1e-6),
      _run(_build(size), clients),
      whole,
    )


def test_cohorts_of_all_sizes_share_one_trace_of_the_stages():
  num_traces = []

  def work(*arguments):
    num_traces.append(1)
    return running_sum.client_work(*arguments)

  algorithm = running_sum.algorithm(client_work=work)
  phase = algorithm.phases[running_sum.PHASE]
  types = phase_types.check_algorithm(algorithm, 3)[phase.name]
  graphs = phase_graph.PhaseGraphs(phase, types, True)
  for clients in (_CLIENTS[:3], _CLIENTS[:1], _CLIENTS[:2] * 6, _CLIENTS[1:3]):
    _run(graphs.client_work(len(clients), 3), clients)
  assert len(num_traces) == 1
  assert graphs._client_work.cache_info().currsize == 2


def test_nothing_is_like_the_output_of_no_clients():
  algorithm = running_sum.algorithm()
  phase = algorithm.phases[running_sum.PHASE]
  types = phase_types.check_algorithm(algorithm, 3)[phase.name]
  graphs = phase_graph.PhaseGraphs(phase, types, True)
  sums, (collection,), ((indices, states),) = graphs.nothing()
  some = _run(graphs.client_work(3, 3), _CLIENTS[:3])
  tf.nest.assert_same_structure((sums, collection, states), some)
  assert all(not leaf.any() for leaf in tf.nest.flatten(sums))
  assert len(indices) == len(collection['client_index']) == 0
  assert all(len(leaf) == 0 for leaf in tf.nest.flatten(states))


def test_a_state_that_is_uploaded_stays_the_same_tensor():
  """The look for NaN at an uploaded state is saved only then."""
  leaf = tf.constant(1.0)
  one, other, third = phase_graph._stack_one((leaf, leaf, tf.constant(1.0)))
  assert one is other
  assert one is not third
  assert one.shape == [1]
