"""Tests of the types of a phase: which stages do not fit, and the words for it."""

import dataclasses
import gc
import re
import weakref
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum, toy_phase
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.core import carrying, errors
from tff_algos.numerics import statistics
from tff_algos.rounds import (
  aggregation,
  client_rows,
  composer,
  phase_types,
)


def _check(**changes):
  phase = toy_phase.PHASE._replace(**changes)
  return phase_types.check_phase(
    phase, toy_phase.STATE, toy_phase.CLIENT_STATE, toy_phase.DATA
  )


def test_types_of_a_phase():
  types = _check()
  assert types.message == OrderedDict(total=tf.TensorSpec([2]))
  assert types.server_state == toy_phase.STATE
  assert types.clients.client_state == toy_phase.CLIENT_STATE
  assert set(types.output.result) == {'moved', 'weight', 'twice', 'tag'}
  assert types.output.client_state == toy_phase.CLIENT_STATE


def test_a_phase_without_client_state_gets_none():
  def work(message, client_input, client_state, data, seed):
    assert client_state == ()
    return toy_phase.work(message, client_input, 0.0, data, seed)._replace(
      client_state=client_state
    )

  types = _check(client_work=work, uses_client_state=False)
  assert types.clients.client_state == types.output.client_state == ()


def test_stages_are_graphs():
  stages = _check().stages
  state = toy_phase.State(tf.constant([1.0, 2]), tf.constant(0))
  message = stages.make_message(state)
  np.testing.assert_array_equal(message['total'], [1, 2])

  @tf.function(autograph=False)
  def run():
    output = stages.client_work(
      message,
      client_rows.Rows(tf.ones([5, 2]), tf.constant([0.0, 7, 9, 0, 0])),
      tf.range(3),
      composer.Clients(
        tf.constant(0),
        tf.constant(4.0),
        tf.constant(0.5),
        client_rows.Span(tf.constant(1), tf.constant(2)),
        tf.constant([1, 2]),
      ),
    )
    # What is uploaded twice is one tensor, so that it is inspected once.
    assert output.result['moved'] is output.result['tag']
    return output

  output = run()
  np.testing.assert_array_equal(output.result['moved'], [4, 5])
  assert output.result['twice'] == 8
  assert output.client_state == 4.5
  assert output.metrics['size'].total == 16


def test_the_graphs_of_an_algorithm_go_with_it():
  built = fed_soft.build_fed_soft(toy_phase.MODEL, fed_soft.FedSoftConfig())
  assert phase_types.check_algorithm(built)
  known, built = weakref.ref(built), None
  gc.collect()
  assert known() is None


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
    r'<<total=float32\[2\],num_calls=int32>>: AttributeError',
  ),
  'client input of another type': (
    {'client_input': OrderedDict(weight=tf.TensorSpec([], tf.float32))},
    r"stage 'client_work' .* client_input gives it.*<weight=float32>",
  ),
  'aggregated field is not there': (
    {'aggregation': {'update': aggregation.Sum()}},
    r"aggregation of 'update' by Sum needs the field 'update', but client_work "
    r'returns <moved=float32\[2\],weight=float32,twice=float32,tag=',
  ),
  'weight field is not there': (
    {'aggregation': {'moved': aggregation.WeightedMean('wait')}},
    r"aggregation of 'moved' by WeightedMean needs the field 'wait', but "
    r'client_work returns <moved=float32\[2\],weight=float32',
  ),
  'aggregate that nobody made': (
    {'aggregation': {'moved': aggregation.WeightedMean('weight')}},
    r"stage 'server_update' does not accept what aggregation gives it.*'twice'",
  ),
  'aggregate of another kind': (
    {'aggregation': toy_phase.PHASE.aggregation | {'moved': aggregation.Sum()}},
    r"stage 'server_update' does not accept what aggregation gives it",
  ),
  'client state changes its dtype': (
    {'client_work': toy_phase.reply(client_state=lambda _: tf.constant(1))},
    r'client state after client_work has type int32, but client state '
    r'before client_work has type float32; they must be the same',
  ),
  'client state changes its structure': (
    {
      'client_work': toy_phase.reply(
        client_state=lambda out: (out.client_state,)
      )
    },
    r'client state after client_work has type <float32>, but client state '
    r'before client_work has type float32',
  ),
  'server state changes its shape': (
    {'server_update': lambda state, _: (state._replace(total=tf.ones(3)), ())},
    r'server state after server_update has type <total=float32\[3\],num_calls='
    r'int32>, but server state before server_update has type <total=float32'
    r'\[2\],num_calls=int32>; they must be the same',
  ),
  'server state becomes another class': (
    {'server_update': lambda state, _: (tuple(state), ())},
    r'server state after server_update has type <float32\[2\],int32>',
  ),
  'server update returns the state alone': (
    {'server_update': lambda state, _: state},
    r"'server_update' must return the pair \(server state, metrics\), got "
    r'<total=float32\[2\],num_calls=int32>',
  ),
  'client work returns a plain tuple': (
    {'client_work': lambda *arguments: tuple(toy_phase.work(*arguments))},
    r"'client_work' must return a ClientOutput .*, got tuple <<moved=float32",
  ),
  'client work returns a bare tensor as result': (
    {
      'client_work': toy_phase.reply(
        result=lambda output: output.result['moved']
      )
    },
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
  built = fed_soft.build_fed_soft(toy_phase.MODEL, fed_soft.FedSoftConfig())
  types = phase_types.check_algorithm(built)
  assert set(types) == set(built.phases)
  train = built.phases['train']
  assert phase_types.types_of(built, train, 3) is types['train']
  broken = train._replace(make_message=lambda state: state)
  built = dataclasses.replace(built, phases={**built.phases, 'train': broken})
  with pytest.raises(errors.StageTypeError, match="phase 'train'.*client_work"):
    phase_types.check_algorithm(built)


def _client_metric(value):
  def work(*arguments):
    output = running_sum.client_work(*arguments)
    return output._replace(metrics=OrderedDict(norm=value))

  return {'client_work': work}


def _server_metric(value):
  return {
    'server_update': lambda state, _: (state, OrderedDict(norm=value)),
  }


@pytest.mark.parametrize(
  ('stages', 'words'),
  [
    (_client_metric(0.5), 'MeanStat of scalars, got float32'),
    (
      _client_metric(statistics.MeanStat(tf.zeros([2]), tf.ones([2]))),
      r'MeanStat of scalars, got <total=float32\[2\],weight=float32\[2\]>',
    ),
    (_server_metric(tf.zeros([3])), r'must be a number, got float32\[3\]'),
    (_server_metric('ok'), 'server_update must be a number, got string'),
  ],
)
def test_a_metric_that_is_no_number_is_refused(stages, words):
  algorithm = running_sum.algorithm(**stages)
  with pytest.raises(errors.StageTypeError, match=f"metric 'norm'.*{words}"):
    phase_types.check_algorithm(algorithm)


@pytest.mark.parametrize(
  'stages',
  [_server_metric(True), _server_metric(OrderedDict(audit=tf.zeros([3])))],
)
def test_numbers_and_nested_values_are_metrics(stages):
  phase_types.check_algorithm(running_sum.algorithm(**stages))


@pytest.mark.parametrize(
  ('rules', 'words'),
  [
    ({'total': 1, 'mean': 1}, "'said' is in the server state alone"),
    ({'total': 1, 'mean': 1, 'said': 1, 'all': 1}, "'all' is in carry alone"),
    ({'total': {'x': 1}, 'mean': 1, 'said': 1}, "'x' is in carry alone"),
  ],
)
def test_every_field_of_the_server_state_has_a_rule(rules, words):
  def rule(value):
    if isinstance(value, dict):
      return {name: rule(one) for name, one in value.items()}
    return carrying.KEEP

  algorithm = dataclasses.replace(
    running_sum.algorithm(), carry=carrying.Carry(rule(rules))
  )
  with pytest.raises(errors.StageTypeError, match=f'carry must .*{words}'):
    phase_types.check_algorithm(algorithm)


@pytest.mark.parametrize('stage', ['init_server_state', 'init_client_state'])
def test_a_stage_outside_of_phases_is_of_the_algorithm(stage):
  def fail(*unused):
    raise ValueError('too large')

  built = dataclasses.replace(
    fed_soft.build_fed_soft(toy_phase.MODEL, fed_soft.FedSoftConfig()),
    **{stage: fail},
  )
  with pytest.raises(
    errors.StageTypeError, match=f"^algorithm 'fed_soft': stage '{stage}' "
  ):
    phase_types.check_algorithm(built)


def test_an_option_that_does_not_fit_the_model_is_said_as_it_is():
  def refuse(*unused):
    raise errors.ConfigError('too large')

  with pytest.raises(errors.ConfigError, match='^too large$'):
    _check(client_work=refuse)


def test_state_specs_depend_on_the_population():
  built = fed_soft.build_fed_soft(toy_phase.MODEL, fed_soft.FedSoftConfig())
  server_state, client_state = phase_types.state_specs(built, 7)
  assert server_state.importance_weights == tf.TensorSpec([7, 2])
  assert client_state.num_updates == tf.TensorSpec([], tf.int32)
