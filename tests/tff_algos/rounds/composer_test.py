"""Tests of the composer: rounds by hand, and its guard against NaN."""

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toy_phase
from tff_algos.core import algorithm
from tff_algos.numerics import statistics
from tff_algos.rounds import aggregation, composer


def _client(index, number, x):
  x = np.asarray(x, np.float32)
  return composer.Clients(
    tf.constant(index),
    tf.constant(float(number)),
    tf.constant(100.0 + index),
    algorithm.ClientData(
      tf.constant(x), tf.ones([len(x)]) * 3, tf.ones([len(x)])
    ),
    tf.constant([0, index]),
  )


_CLIENTS = [
  _client(4, 1, [[1, 2]]),
  _client(0, 3, [[1, 0], [2, 2]]),
  _client(2, 4, [[5, 5]]),
]
_MESSAGE = {'total': tf.constant([10.0, 20.0])}


def _stack(rows):
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *rows)


def _run(clients, phase=toy_phase.PHASE):
  """Runs a phase over clients one after the other."""
  outputs = [composer.client_work(phase, _MESSAGE, one) for one in clients]
  old_states = _stack([one.client_state for one in clients])
  stack = composer.guard(_stack(outputs), old_states)
  index = tf.stack([one.client_index for one in clients])
  state = toy_phase.State(_MESSAGE['total'], tf.constant(6))
  return stack, composer.server_update(
    phase,
    state,
    composer.partial_sums(phase, stack),
    composer.collected(phase, index, stack),
  )


def test_as_fields_takes_named_tuples_and_mappings():
  assert composer.as_fields(toy_phase.State(1, 2)) == {
    'total': 1,
    'num_calls': 2,
  }
  assert list(composer.as_fields({'b': 1, 'a': 2})) == ['b', 'a']


def test_a_round_by_hand():
  outputs, (state, metrics) = _run(_CLIENTS)
  moved = np.array([[11, 22], [13, 22], [15, 25]])
  np.testing.assert_array_equal(state.total, np.array([1, 3, 4]) @ moved / 8)
  assert int(state.num_calls) == 7
  assert float(metrics['twice']) == 16
  assert outputs.client_state.numpy().tolist() == [105, 103, 106]


def test_collected_results_come_by_ascending_client_index():
  def update(state, aggregates):
    return state, aggregates['tag']

  phase = toy_phase.PHASE._replace(server_update=update)
  for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
    _, (_, tags) = _run([_CLIENTS[i] for i in order], phase)
    assert tags.client_index.numpy().tolist() == [0, 2, 4]
    assert tags.values.numpy().tolist() == [[13, 22], [15, 25], [11, 22]]
    assert tags.is_valid.numpy().all()


def test_a_phase_that_collects_nothing_moves_nothing():
  phase = toy_phase.PHASE._replace(aggregation={'twice': aggregation.Sum()})
  output, _ = _run(
    _CLIENTS[:1], phase._replace(server_update=lambda s, a: (s, ()))
  )
  assert composer.collected(phase, tf.constant([0]), output) == {}


@pytest.mark.parametrize('poison', [np.nan, np.inf])
def test_an_invalid_client_is_counted_and_nothing_else(poison):
  """It keeps its old state and is in no sum, no mean and no metric."""
  bad = _client(3, 1000, [[1, poison]])
  clients = [_CLIENTS[0], bad, *_CLIENTS[1:]]
  outputs, (state, metrics) = _run(clients)
  _, (clean_state, clean_metrics) = _run(_CLIENTS)
  np.testing.assert_array_equal(state.total, clean_state.total)
  assert float(metrics['twice']) == float(clean_metrics['twice'])
  assert outputs.is_valid.numpy().tolist() == [True, False, True, True]
  assert float(outputs.client_state[1]) == 103
  for leaf in tf.nest.flatten((outputs.result, outputs.metrics)):
    assert np.isfinite(leaf).all()
  sums = composer.partial_sums(toy_phase.PHASE, outputs)
  assert int(sums['num_invalid']) == 1
  assert float(sums['metrics']['size'].weight) == 4
  collection = composer.collected(
    toy_phase.PHASE, tf.constant([4, 3, 0, 2]), outputs
  )
  assert collection['is_valid'].numpy().tolist() == [True, False, True, True]


def test_a_client_whose_state_alone_breaks_is_invalid_too():
  work = toy_phase.reply(client_state=lambda _: tf.constant(np.nan))
  output = composer.guard_one(
    composer.client_work(
      toy_phase.PHASE._replace(client_work=work), _MESSAGE, _CLIENTS[0]
    ),
    _CLIENTS[0].client_state,
  )
  assert output.is_valid.numpy().tolist() == [False]
  assert float(output.client_state[0]) == 104
  assert not output.result['moved'].numpy().any()


@pytest.mark.parametrize(
  'broken', ['nothing', 'x', 'note', 'client_state', 'metrics']
)
def test_what_leaves_a_block_is_that_of_the_guarded_stack(broken):
  """Also where sums and what is collected are finite all the same."""

  def poison(output, place):
    is_bad = tf.equal(tf.reduce_max(output.result['moved']), 25.0)
    return tf.where(is_bad & (broken == place), np.nan, 0.0)

  def spoil(output, field):
    return tf.nest.map_structure(
      lambda leaf: leaf + poison(output, field), getattr(output, field)
    )

  work = toy_phase.reply(
    # A field without an aggregator.
    result=lambda output: {**output.result, 'note': poison(output, 'note')},
    **{
      field: lambda output, field=field: spoil(output, field)
      for field in ('client_state', 'metrics')
    },
  )
  phase = toy_phase.PHASE._replace(client_work=work)
  bad = _client(3, 1000, [[1, np.nan]])
  clients = [*_CLIENTS, bad] if broken == 'x' else _CLIENTS
  outputs = _stack(
    [composer.client_work(phase, _MESSAGE, one) for one in clients]
  )
  old_states = _stack([one.client_state for one in clients])
  index = tf.stack([one.client_index for one in clients])
  found = composer.aggregate(phase, index, outputs, old_states)
  guarded = composer.guard(outputs, old_states)
  expected = (
    composer.partial_sums(phase, guarded),
    composer.collected(phase, index, guarded),
    guarded.client_state,
  )
  for leaf, of_guarded in zip(
    tf.nest.flatten(found), tf.nest.flatten(expected), strict=True
  ):
    np.testing.assert_array_equal(leaf, of_guarded)
    assert np.isfinite(leaf).all()
  is_invalid = broken in ('x', 'note', 'client_state')
  assert int(found[0]['num_invalid']) == is_invalid


def test_metrics_that_are_not_finite_are_left_out_of_the_sums_alone():
  def infinite(output):
    loss = statistics.MeanStat(tf.constant(np.inf), tf.constant(2.0))
    return OrderedDict(output.metrics, size=loss)

  phase = toy_phase.PHASE._replace(
    client_work=toy_phase.reply(metrics=infinite)
  )
  output = composer.guard_one(
    composer.client_work(phase, _MESSAGE, _CLIENTS[0]),
    _CLIENTS[0].client_state,
  )
  assert output.is_valid.numpy().tolist() == [True]
  assert output.result['moved'].numpy().tolist() == [[11, 22]]
  assert float(output.metrics['size'].weight[0]) == 0


def test_if_all_clients_are_invalid_the_mean_weighs_nothing():
  def update(state, aggregates):
    return state, aggregates['moved']

  bad = [_client(i, 1, [[np.nan, 0]]) for i in range(2)]
  _, (_, mean) = _run(bad, toy_phase.PHASE._replace(server_update=update))
  assert float(mean.weight) == 0
  assert mean.value.numpy().tolist() == [0, 0]
