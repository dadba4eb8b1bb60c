"""What every registered algorithm promises, on every runtime.

A new algorithm is tested with its defaults and the common options of
`tests/testing/contract.py`, which also has those of algorithms that need others.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import continued, contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying, tff_compat
from tff_algos.rounds import evaluation, phase_types
from tff_algos.runtimes import cohort as cohort_lib

# Clients of the regression and of the perceptron are vectorized, those of the
# convolution looped over, which takes a third as long to trace.
_VECTORIZED = {'cmfl', 'fed_avg', 'fed_soft', 'pfedkm', 'ppfl'}
# Whose plans ask all clients, also those without examples.
_ASKS_ALL = {'gossip', 'l2gd', 'per_fed_avg'}
# For the second tier.
_RARE_SHAPES = {'one example each', 'sizes far apart'}


def _models(name: str) -> tuple[str, ...]:
  """Returns the models of an algorithm in the first tier; the second has all."""
  # Vectorized, the nested loops of pFedKM take twice as long as any other case.
  is_vectorized = name in _VECTORIZED and name != 'pfedkm'
  return ('logistic',) if is_vectorized else ('convolution',)


@pytest.fixture(
  scope='module',
  params=[
    pytest.param(
      (name, model),
      id=f'{name}-{model}',
      marks=[
        pytest.mark.xdist_group(f'contract of {name}, {model}'),
        *([] if model in _models(name) else [pytest.mark.verify]),
      ],
    )
    for name in registry.ALGORITHMS
    for model in contract.MODELS
    if model != 'logistic' or name in _VECTORIZED
  ],
)
def case(request):
  name, model = request.param
  with contract.Case(name, model) as made:
    yield made


def test_training_changes_the_models(case):
  before = toys.initial_states(
    case.algorithm, contract.build_source().population
  )[0]
  changes = [
    np.abs(np.subtract(one, other, dtype=np.float64)).max()
    for one, other in zip(
      *(
        tf.nest.flatten(case.algorithm.cluster_weights(server_state))
        for server_state in (case.expected[0], before)
      ),
      strict=True,
    )
  ]
  assert max(changes) > 100 * contract.TOLERANCE['atol']
  contract.assert_valid(case.expected)


def test_no_operation_is_looped_over_for_want_of_vectorization(case):
  if not case.algorithm.cluster_model.vectorizes:
    pytest.skip('Its clients are computed one after the other.')
  assert not [one for one in case.log if 'looped over' in one]


def test_debug_runtime_agrees(case):
  contract.assert_close(case.debugged, case.expected)


def test_tff_runtime_agrees_and_repeats_itself(case):
  first = case.run(case.tff)
  contract.assert_close(first, case.expected)
  np.testing.assert_equal(case.run(case.tff), first)


@pytest.mark.verify
def test_pjrt_runtime_agrees_and_repeats_itself(case):
  # NumPy fetches client states that are held on the device.
  first, again = (cohort_lib.to_numpy(case.run(case.pjrt)) for _ in range(2))
  contract.assert_close(first, case.expected)
  np.testing.assert_equal(again, first)


@pytest.mark.parametrize(
  'shape',
  [
    pytest.param(shape, marks=[pytest.mark.verify] * (shape in _RARE_SHAPES))
    for shape in contract.SHAPES
  ],
)
def test_runtimes_agree_on_odd_shapes(case, shape):
  odd = contract.SHAPES[shape]
  if case.algorithm.name not in odd.options:
    pytest.skip(f'{case.algorithm.name} has no cohort of this shape')
  expected = case.run_shape(odd, case.vectorized)
  contract.assert_finite(expected[:2])
  runtimes = [case.tff]
  if case.algorithm.cluster_model.vectorizes:  # Eager convolutions take long.
    runtimes.append(case.debug)
  for runtime in runtimes:
    contract.assert_close(
      case.run_shape(odd, runtime), expected, may_be_invalid=bool(odd.replaced)
    )


def test_if_nobody_is_valid_no_model_changes(case):
  """All clusters are empty."""
  odd = contract.SHAPES['one client, invalid']
  server_state, states, outputs = case.run_shape(odd, case.vectorized)
  before, states_before = toys.initial_states(
    case.algorithm, contract.build_source().population
  )
  assert sum(output.num_invalid for output in outputs) >= (
    contract.NUM_SHAPE_ROUNDS
  )
  np.testing.assert_equal(states, states_before)
  np.testing.assert_equal(
    *(
      cohort_lib.to_numpy(case.algorithm.cluster_weights(one))
      for one in (server_state, before)
    )
  )


def test_runtimes_agree_on_local_models(case):
  if case.algorithm.local_weights is None:
    pytest.skip(f'{case.algorithm.name} keeps no local models')
  server_state, states, _ = case.expected
  phase = evaluation.build_personalized_evaluation(case.algorithm)
  indices = np.arange(len(contract.SIZES), dtype=np.int32)
  call = algorithm_lib.PhaseCall(
    phase.name, indices, indices, algorithm_lib.Cost()
  )
  arguments = (1, 0, contract.build_source())
  expected, *others = (
    toys.run_call(
      runtime, phase, server_state, list(states), call, arguments
    ).server_metrics
    for runtime in (case.vectorized, case.debug, case.tff)
  )
  assert expected['local_score'].weight.tolist() == list(contract.SIZES)
  for metrics in others:
    contract.assert_all_close(metrics, expected)


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(case):
  runs = [(case.vectorized, case.expected)]
  if case.algorithm.cluster_model.vectorizes:  # Eager convolutions take long.
    runs.append((case.debug, case.debugged))
  for runtime, first in runs:
    *states, outputs = case.run(runtime)
    *expected_states, expected = first
    np.testing.assert_equal(states, expected_states)
    for output, expected_output in zip(outputs, expected, strict=True):
      toys.assert_outputs_close(output, expected_output, rtol=0)
  other = case.run(seed=1)
  same = [
    np.array_equal(one, two)
    for one, two in zip(
      tf.nest.flatten(case.algorithm.cluster_weights(other[0])),
      tf.nest.flatten(case.algorithm.cluster_weights(case.expected[0])),
      strict=True,
    )
  ]
  assert not all(same)


def test_state_types_are_a_fixed_point(case):
  def types(structure):
    return tf.nest.map_structure(
      lambda leaf: (np.shape(leaf), np.asarray(leaf).dtype), structure
    )

  before = toys.initial_states(
    case.algorithm, contract.build_source().population
  )
  for one, other in zip(case.expected[:2], before, strict=True):
    tf.nest.assert_same_structure(one, other)
    assert types(one) == types(other)


class _PaddedRuntime:
  """A runtime that loads single clients, each padded by 13 rows more.

  Attributes:
    num_padded: Number of clients that were padded so.
  """

  def __init__(self, runtime):
    self._runtime = runtime
    self.num_padded = 0

  def run(self, phase, server_state, cohort):
    padded = self

    class _Cohort(cohort_lib.Cohort):
      def client(self, position, *, uses_client_state):
        padded.num_padded += 1
        one = super().client(position, uses_client_state=uses_client_state)
        return one._replace(
          data=tf.nest.map_structure(
            lambda leaf: np.pad(leaf, [(0, 13)] + [(0, 0)] * (leaf.ndim - 1)),
            one.data,
          )
        )

    return self._runtime.run(phase, server_state, _Cohort(*cohort))


def test_padding_changes_nothing(case):
  # The vectorized runtime loads no padded examples.
  runtime = _PaddedRuntime(case.tff)
  contract.assert_close(case.run(runtime), case.expected)
  assert runtime.num_padded > 0


def test_graphs_are_traced_once_whatever_the_cohort(case):
  """Two graphs a phase: one of whole blocks of two, one of what is left."""

  def run_parts(sizes):
    for server_state, states, call, round_num in case.calls():
      for size in sizes(len(call.client_indices)):
        case.run_call(
          server_state,
          list(states),
          _without(call, call.client_indices[size:]),
          contract.build_source(),
          round_num,
        )

  run_parts(lambda size: range(1, min(size, 2) + 1))
  before = dict(case.traces)
  assert before
  run_parts(lambda size: range(3, size + 1))
  case.run(source=contract.build_source((40, 3, 9, 1, 70)))
  assert case.traces == before


def _without(call, client_indices):
  """Returns the call without some of its clients."""
  kept = ~np.isin(call.client_indices, client_indices)
  return dataclasses.replace(
    call,
    client_indices=call.client_indices[kept],
    client_inputs=tf.nest.map_structure(
      lambda leaf: leaf[kept], call.client_inputs
    ),
  )


@pytest.mark.parametrize(
  'value',
  [
    pytest.param(np.nan, id='nan'),
    pytest.param(np.inf, id='infinite', marks=pytest.mark.verify),
    pytest.param(3e38, id='overflows'),
  ],
)
def test_client_that_is_not_finite_is_counted_and_changes_nothing(case, value):
  """Every phase call with the broken client and without it: the same.

  With 3e38 the data are finite and what is computed from them is not. What a
  phase makes of broken data may be finite still (counts, say); then only the
  client's own entries of the server state may differ, and no model.
  """
  broken = 3
  x = contract.build_source().examples(broken).x.copy()
  # All rows but one: what no unit of a model sees is no harm to it.
  x[1:] = value * np.sign(x[1:])
  source = contract.build_source(c3=x)
  num_counted = 0
  for server_state, states, call, round_num in case.calls():
    if broken not in call.client_indices or len(call.client_indices) == 1:
      continue
    with_it, without_it = list(states), list(states)
    output = case.run_call(server_state, with_it, call, source, round_num)
    expected = case.run_call(
      server_state, without_it, _without(call, [broken]), source, round_num
    )
    num_counted += output.num_invalid
    np.testing.assert_equal(with_it[broken], states[broken])
    contract.assert_all_close(with_it, without_it)
    models = [
      case.algorithm.cluster_weights(one.server_state)
      for one in (output, expected)
    ]
    contract.assert_all_close(*models)
    contract.assert_finite((output.server_state, output.client_metrics))
    if output.num_invalid:
      contract.assert_all_close(output.server_state, expected.server_state)
      contract.assert_all_close(output.client_metrics, expected.client_metrics)
  assert num_counted > 0


def test_client_without_examples_trains_no_model(case):
  """It is never asked, or what it says weighs nothing."""
  empty = contract.SIZES.index(0)
  calls = [one for one in case.calls() if empty in one[2].client_indices]
  assert bool(calls) == (case.algorithm.name in _ASKS_ALL)
  for server_state, states, call, round_num in calls:
    others = _without(call, [empty])
    models = [
      case.algorithm.cluster_weights(
        case.run_call(
          server_state, list(states), one, contract.build_source(), round_num
        ).server_state
      )
      for one in (call, others)
    ]
    contract.assert_all_close(*models)


def test_calls_name_distinct_clients_and_fit_their_phase(case):
  for _, _, call, _ in case.calls():
    phase = case.algorithm.phases[call.phase]
    assert call.client_indices.dtype == np.int32
    assert len(set(call.client_indices)) == len(call.client_indices) > 0
    tf.nest.assert_same_structure(call.client_inputs, phase.client_input)
    for leaf, spec in zip(
      tf.nest.flatten(call.client_inputs),
      tf.nest.flatten(phase.client_input),
      strict=True,
    ):
      assert leaf.shape == (len(call.client_indices), *spec.shape)
      assert leaf.dtype == spec.dtype.as_numpy_dtype
    assert min(call.cost) >= 0


def test_computation_has_the_documented_placements(case):
  types = phase_types.check_algorithm(case.algorithm, len(contract.SIZES))
  for name, phase in case.algorithm.phases.items():
    signature = case.tff.computations_of(phase).whole.type_signature
    server_state = str(tff_compat.to_type(types[name].server_state))
    clients = str(tff_compat.to_type(types[name].clients))
    client_state = str(tff_compat.to_type(types[name].clients.client_state))
    assert str(signature.parameter) == (
      f'<server_state={server_state}@SERVER,clients={{{clients}}}@CLIENTS>'
    )
    result = signature.result
    assert str(result['server_state']) == f'{server_state}@SERVER'
    assert str(result['server_metrics']).endswith('@SERVER')
    assert str(result['clients']) == (
      f'{{<client_index=int32,client_state={client_state}>}}@CLIENTS'
    )
    assert str(result['client_metrics']['metrics']).endswith('@SERVER')
    assert str(result['client_metrics']['num_invalid']) == 'int32@SERVER'


def test_what_is_served_has_the_documented_shapes(case):
  algorithm = case.algorithm
  server_state, states, _ = case.expected
  x = contract.build_source().examples(0).x
  stacked = algorithm.cluster_weights(server_state)
  spec = algorithm.cluster_model.weights_spec()
  tf.nest.assert_same_structure(stacked, spec)
  for leaf, one in zip(
    tf.nest.flatten(stacked), tf.nest.flatten(spec), strict=True
  ):
    assert tuple(leaf.shape) == (algorithm.num_clusters, *one.shape)
  for index, state in enumerate(states):
    client_index = tf.constant(index)
    if algorithm.local_weights is not None:
      local = algorithm.local_weights(server_state, state, client_index)
      tf.nest.assert_same_structure(local, spec)
      assert algorithm.cluster_model.apply(local, x).shape == [len(x), 3]
    weights = algorithm.personalized_weights(server_state, state, client_index)
    outputs = algorithm.personalized_model.apply(weights, x)
    assert outputs.shape == [len(x), 3]
    contract.assert_finite(outputs)
    membership = algorithm.membership(server_state, state, client_index)
    assert membership.shape == (algorithm.num_clusters,)
    assert membership.dtype == tf.float32
    if algorithm.serves_global:
      assert membership.numpy().tolist() == [1.0]
      tf.nest.map_structure(
        lambda own, all_: np.testing.assert_array_equal(own, all_[0]),
        weights,
        stacked,
      )


def _rows(rules, state):
  """Yields rule and array of each leaf of a server state."""
  for name, value in state._asdict().items():
    if isinstance(rules[name], carrying.Rule):
      yield from ((rules[name], leaf) for leaf in tf.nest.flatten(value))
    else:
      yield from _rows(rules[name], value)


_BY_CLIENT = (carrying.CLIENTS, carrying.STAYING, carrying.CLUSTER)


@pytest.fixture(scope='module')
def parent(case, tmp_path_factory):
  folder = tmp_path_factory.mktemp('continued') / 'parent'
  return continued.Run(case, folder, contract.build_source()).train(2)


def test_a_run_continued_on_the_same_data_is_the_run_itself(parent):
  child = parent.follow('same', parent.source)
  assert child.parent[-4:] == (5, 0, 0, 0)
  np.testing.assert_equal(child.server_state, parent.server_state)
  alone = continued.Run(
    parent.case, parent.folder.with_name('alone'), parent.source
  ).train(3)
  child.train(1)
  np.testing.assert_equal(child.server_state, alone.server_state)
  everyone = np.arange(5)
  np.testing.assert_equal(
    cohort_lib.to_numpy(child.store.load(everyone)),
    cohort_lib.to_numpy(alone.store.load(everyone)),
  )


def test_a_permuted_population_changes_the_order_alone(parent):
  order = np.array([3, 0, 4, 2, 1])
  ids = np.array(parent.source.population.client_ids)[order]
  child = parent.follow('permuted', continued.population(parent.source, ids))
  rules = parent.case.algorithm.carry.rules
  for (rule, moved), (_, old) in zip(
    _rows(rules, child.server_state),
    _rows(rules, parent.server_state),
    strict=True,
  ):
    if rule in _BY_CLIENT:
      old = old[order]
    elif rule is carrying.PAIRS:
      old = old[order][:, order]
    np.testing.assert_array_equal(moved, old)
  for client_id in ids:
    np.testing.assert_equal(
      child.state_of(client_id), parent.state_of(client_id)
    )


def test_clients_come_go_and_return(parent):
  """`c003` leaves, two clients come; then it returns, and `c000` leaves."""
  ids = parent.source.population.client_ids
  staying = [one for one in ids if one != 'c003']
  source = continued.population(parent.source, staying, n1='c004', n2='c002')
  child = parent.follow('without', source)
  assert child.parent[-4:] == (4, 0, 2, 1)
  rules = parent.case.algorithm.carry.rules
  initial = continued.Run(parent.case, parent.folder.with_name('no'), source)
  for (rule, moved), (_, old), (_, new) in zip(
    _rows(rules, child.server_state),
    _rows(rules, parent.server_state),
    _rows(rules, initial.server_state),
    strict=True,
  ):
    assert moved.shape == new.shape
    if rule in _BY_CLIENT:
      np.testing.assert_array_equal(moved[:4], old[[0, 1, 2, 4]])
    elif rule is carrying.CLIENT_SUM:
      # The client without examples has no state.
      np.testing.assert_allclose(moved, old * 3 / 4, rtol=1e-6)
    elif rule is carrying.KEEP:
      np.testing.assert_array_equal(moved, old)
  for client_id in staying:
    np.testing.assert_equal(
      child.state_of(client_id), parent.state_of(client_id)
    )
  if parent.case.algorithm.carry.newcomer_state is None:
    np.testing.assert_equal(child.state_of('n1'), initial.state_of('n1'))
  back = child.follow(
    'back', continued.population(parent.source, ids[1:], n1='c004')
  )
  assert back.parent[-4:] == (4, 1, 0, 2)
  np.testing.assert_equal(back.state_of('c003'), parent.state_of('c003'))
  for (rule, moved), (_, old) in zip(
    _rows(rules, back.server_state),
    _rows(rules, parent.server_state),
    strict=True,
  ):
    if rule in _BY_CLIENT and rule is not carrying.STAYING:
      np.testing.assert_array_equal(moved[2], old[3])
  back.train(1)
  contract.assert_finite(back.server_state)
