"""Tests of the composer: what it refuses to join, and its guard against NaN."""

import re
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms import fed_soft
from tff_algos.core import algorithm, errors
from tff_algos.metrics import statistics
from tff_algos.stages import aggregation, composer


class State(NamedTuple):
  total: tf.Tensor
  num_calls: tf.Tensor


_STATE = State(tf.TensorSpec([2]), tf.TensorSpec([], tf.int32))
_CLIENT_STATE = tf.TensorSpec([], tf.float32)
_MODEL = toys.linear(2)
_DATA = composer.data_spec(_MODEL)


def _work(message, client_input, client_state, data, seed):
  del seed
  moved = message['total'] + tf.reduce_sum(data.x, axis=0)
  return algorithm.ClientOutput(
    OrderedDict(
      moved=moved, weight=client_input, twice=2 * client_input, tag=moved
    ),
    client_state + client_input,
    OrderedDict(size=statistics.masked_mean(data.y, data.mask)),
  )


def _update(state, aggregates):
  return (
    State(aggregates['moved'].value, state.num_calls + 1),
    OrderedDict(twice=aggregates['twice']),
  )


_PHASE = algorithm.Phase(
  name='toy',
  make_message=lambda state: OrderedDict(total=state.total),
  client_work=_work,
  aggregation={
    'moved': aggregation.WeightedMean('weight'),
    'twice': aggregation.Sum(),
    'tag': aggregation.Collect(),
  },
  server_update=_update,
  client_input=tf.TensorSpec([], tf.float32),
)


def _check(**changes):
  phase = _PHASE._replace(**changes)
  return composer.check_phase(phase, _STATE, _CLIENT_STATE, _DATA)


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


def _run(clients, phase=_PHASE):
  """Runs a phase over clients one after the other."""
  outputs = [composer.client_work(phase, _MESSAGE, one) for one in clients]
  old_states = _stack([one.client_state for one in clients])
  stack = composer.guard(_stack(outputs), old_states)
  index = tf.stack([one.client_index for one in clients])
  state = State(_MESSAGE['total'], tf.constant(6))
  return stack, composer.server_update(
    phase,
    state,
    composer.partial_sums(phase, stack),
    composer.collected(phase, index, stack),
  )


def test_types_of_a_phase():
  types = _check()
  assert types.message == OrderedDict(total=tf.TensorSpec([2]))
  assert types.server_state == _STATE
  assert types.clients.client_state == _CLIENT_STATE
  assert set(types.output.result) == {'moved', 'weight', 'twice', 'tag'}
  assert types.output.client_state == _CLIENT_STATE


def test_a_phase_without_client_state_gets_none():
  def work(message, client_input, client_state, data, seed):
    assert client_state == ()
    return _work(message, client_input, 0.0, data, seed)._replace(
      client_state=client_state
    )

  types = _check(client_work=work, uses_client_state=False)
  assert types.clients.client_state == types.output.client_state == ()


def _reply(**changes):
  """Client work whose output is changed."""

  def work(*arguments):
    output = _work(*arguments)
    return output._replace(
      **{name: change(output) for name, change in changes.items()}
    )

  return work


_MISMATCHES = {
  'message lacks a field': (
    {'make_message': lambda state: OrderedDict(sum=state.total)},
    r"phase 'toy': stage 'client_work' does not accept what make_message and "
    r"client_input gives it, of type <<sum=float32\[2\]>,.*KeyError: 'total'",
  ),
  'message of another shape': (
    {'make_message': lambda state: OrderedDict(total=tf.zeros([3]))},
    r"stage 'client_work' .* make_message .*<total=float32\[3\]>",
  ),
  'server state lacks a field': (
    {'make_message': lambda state: OrderedDict(total=state.sum)},
    r"stage 'make_message' does not accept what server_state gives it, of type "
    r'<<total=float32\[2\],num_calls=int32\[\]>>: AttributeError',
  ),
  'client input of another type': (
    {'client_input': OrderedDict(weight=tf.TensorSpec([], tf.float32))},
    r"stage 'client_work' .* client_input gives it.*<weight=float32\[\]>",
  ),
  'aggregated field is not there': (
    {'aggregation': {'update': aggregation.Sum()}},
    r"aggregation of 'update' by Sum needs the field 'update', but client_work "
    r'returns <moved=float32\[2\],weight=float32\[\],twice=float32\[\],tag=',
  ),
  'weight field is not there': (
    {'aggregation': {'moved': aggregation.WeightedMean('wait')}},
    r"aggregation of 'moved' by WeightedMean needs the field 'wait', but "
    r'client_work returns <moved=float32\[2\],weight=float32\[\]',
  ),
  'aggregate that nobody made': (
    {'aggregation': {'moved': aggregation.WeightedMean('weight')}},
    r"stage 'server_update' does not accept what aggregation gives it.*'twice'",
  ),
  'aggregate of another kind': (
    {'aggregation': _PHASE.aggregation | {'moved': aggregation.Sum()}},
    r"stage 'server_update' does not accept what aggregation gives it",
  ),
  'client state changes its dtype': (
    {'client_work': _reply(client_state=lambda _: tf.constant(1))},
    r'client state after client_work has type int32\[\], but client state '
    r'before client_work has type float32\[\]; they must be the same',
  ),
  'client state changes its structure': (
    {'client_work': _reply(client_state=lambda out: (out.client_state,))},
    r'client state after client_work has type <float32\[\]>, but client state '
    r'before client_work has type float32\[\]',
  ),
  'server state changes its shape': (
    {'server_update': lambda state, _: (state._replace(total=tf.ones(3)), ())},
    r'server state after server_update has type <total=float32\[3\],num_calls='
    r'int32\[\]>, but server state before server_update has type <total=float32'
    r'\[2\],num_calls=int32\[\]>; they must be the same',
  ),
  'server state becomes another class': (
    {'server_update': lambda state, _: (tuple(state), ())},
    r'server state after server_update has type <float32\[2\],int32\[\]>',
  ),
  'server update returns the state alone': (
    {'server_update': lambda state, _: state},
    r"'server_update' must return the pair \(server state, metrics\), got "
    r'<total=float32\[2\],num_calls=int32\[\]>',
  ),
  'client work returns a plain tuple': (
    {'client_work': lambda *arguments: tuple(_work(*arguments))},
    r"'client_work' must return a ClientOutput .*, got tuple <<moved=float32",
  ),
  'client work returns a bare tensor as result': (
    {'client_work': _reply(result=lambda output: output.result['moved'])},
    r"'client_work' must return a ClientOutput whose result is a NamedTuple or "
    r'a mapping of fields, got ClientOutput <result=float32\[2\]',
  ),
  'client work takes fewer arguments': (
    {'client_work': lambda message, data: None},
    r"stage 'client_work' does not accept what make_message and client_input",
  ),
}


@pytest.mark.parametrize('case', _MISMATCHES)
def test_a_mismatch_names_both_stages_and_their_types(case):
  changes, text = _MISMATCHES[case]
  with pytest.raises(errors.StageTypeError, match="^phase 'toy': ") as refusal:
    _check(**changes)
  assert re.search(text, str(refusal.value), re.DOTALL), str(refusal.value)


def test_check_algorithm_checks_every_phase():
  built = fed_soft.build_fed_soft(_MODEL, fed_soft.FedSoftConfig())
  assert set(composer.check_algorithm(built)) == set(built.phases)
  broken = built.phases['train']._replace(make_message=lambda state: state)
  built.phases['train'] = broken
  with pytest.raises(errors.StageTypeError, match="phase 'train'.*client_work"):
    composer.check_algorithm(built)


def test_state_specs_depend_on_the_population():
  built = fed_soft.build_fed_soft(_MODEL, fed_soft.FedSoftConfig())
  server_state, client_state = composer.state_specs(built, 7)
  assert server_state.importance_weights == tf.TensorSpec([7, 2])
  assert client_state.num_updates == tf.TensorSpec([], tf.int32)


def test_as_fields_takes_named_tuples_and_mappings():
  assert composer.as_fields(State(1, 2)) == {'total': 1, 'num_calls': 2}
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

  phase = _PHASE._replace(server_update=update)
  for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
    _, (_, tags) = _run([_CLIENTS[i] for i in order], phase)
    assert tags.client_index.numpy().tolist() == [0, 2, 4]
    assert tags.values.numpy().tolist() == [[13, 22], [15, 25], [11, 22]]
    assert tags.is_valid.numpy().all()


def test_a_phase_that_collects_nothing_moves_nothing():
  phase = _PHASE._replace(aggregation={'twice': aggregation.Sum()})
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
  sums = composer.partial_sums(_PHASE, outputs)
  assert int(sums['num_invalid']) == 1
  assert float(sums['metrics']['size'].weight) == 4
  collection = composer.collected(_PHASE, tf.constant([4, 3, 0, 2]), outputs)
  assert collection['is_valid'].numpy().tolist() == [True, False, True, True]


def test_a_client_whose_state_alone_breaks_is_invalid_too():
  work = _reply(client_state=lambda _: tf.constant(np.nan))
  output = composer.guard_one(
    composer.client_work(
      _PHASE._replace(client_work=work), _MESSAGE, _CLIENTS[0]
    ),
    _CLIENTS[0].client_state,
  )
  assert output.is_valid.numpy().tolist() == [False]
  assert float(output.client_state[0]) == 104
  assert not output.result['moved'].numpy().any()


def test_metrics_that_are_not_finite_are_left_out_of_the_sums_alone():
  def infinite(output):
    loss = statistics.MeanStat(tf.constant(np.inf), tf.constant(2.0))
    return OrderedDict(output.metrics, size=loss)

  phase = _PHASE._replace(client_work=_reply(metrics=infinite))
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
  _, (_, mean) = _run(bad, _PHASE._replace(server_update=update))
  assert float(mean.weight) == 0
  assert mean.value.numpy().tolist() == [0, 0]
