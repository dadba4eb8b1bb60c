"""Factories of `tff.aggregators` in place of means, on the runtime `tff`."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, running_sum, toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import fed_avg, ifca, registry
from tff_algos.core import errors
from tff_algos.core.tff_compat import tff
from tff_algos.rounds import aggregation, aggregation_processes, lr_schedule
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.tff import tff_config, tff_runtime
from tff_algos.runtimes.vectorized import vectorized_runtime
from tff_algos.stages.client import local_training
from tff_algos.training import checkpoint, loop, simulation

_TRAINING = local_training.LocalTrainingConfig(batch_size=100)
_MEAN = tff.aggregators.MeanFactory()
_SUM = tff.aggregators.SumFactory()
_UNWEIGHTED = tff.aggregators.UnweightedMeanFactory()
# Without noise, for sums of three clients below its clipping norm.
_PRIVATE = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
  0.0, 3.0, 100.0
)
# Their models have more than one layer.
_NEED_LAYERS = ('fed_pac', 'filter_decomposition', 'partial_fed_avg')


def _fed_avg():
  config = fed_avg.FedAvgConfig(cohort_size=0, local_training=_TRAINING)
  return fed_avg.build_fed_avg(toys.linear(3), config)


def _source():
  return toys.linear_clients(np.eye(3)[:2], np.eye(2)[[0, 1, 0]], [5, 3, 4])


def _adaptive_clipping(start=0.1):
  norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    initial_estimate=start, target_quantile=0.9, learning_rate=0.5
  )
  return tff.aggregators.clipping_factory(norm, _MEAN)


@contextlib.contextmanager
def _simulated(algorithm, runtime_class=tff_runtime.TffRuntime):
  with runtime_class(algorithm, 3) as runtime:
    yield simulation.Simulation(algorithm, _source(), runtime, seed=1)


def _run(algorithm, num_rounds, runtime_class=tff_runtime.TffRuntime):
  with _simulated(algorithm, runtime_class) as opened:
    for _ in range(num_rounds):
      opened.run_round()
    return opened.server_state


def _assert_close(one, other, **tolerance):
  tf.nest.map_structure(
    lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other
  )


def test_a_factory_of_means_is_the_mean():
  plain = _fed_avg()
  state = _run(
    aggregation_processes.with_aggregators(
      plain, {'train': {'local_weights': _MEAN}}
    ),
    2,
  )
  ours = _run(plain, 2, debug_runtime.DebugRuntime)
  _assert_close(state.server_state, ours, rtol=1e-6)


def test_a_mean_by_cluster_has_a_process_for_each_cluster():
  """One client chooses among two models: the other has no client."""
  config = ifca.IfcaConfig(
    num_clusters=2, cohort_size=1, local_training=_TRAINING
  )
  plain = ifca.build_ifca(toys.linear(3), config)
  # It starts at a norm that clips nothing.
  factory = _adaptive_clipping(start=100.0)
  state = _run(
    aggregation_processes.with_aggregators(
      plain, {'train': {'local_result': factory}}
    ),
    2,
  )
  _assert_close(
    state.server_state, _run(plain, 2, debug_runtime.DebugRuntime), rtol=1e-6
  )
  processes = state.extra['train']['local_result']
  assert processes.is_started and len(processes.states) == 2
  for process in processes.states:
    assert process['clipping_norm'][0].current_estimate < 100.0


def test_clipped_values_are_those_of_numpy():
  """A client's model is clipped, as it is what FedAvg's client uploads."""
  clipped = aggregation_processes.with_aggregators(
    _fed_avg(),
    {'train': {'local_weights': tff.aggregators.clipping_factory(0.2, _MEAN)}},
  )
  state = _run(clipped, 1)
  source = _source()
  with _simulated(_fed_avg(), debug_runtime.DebugRuntime) as alone:
    start = alone.server_state.model_weights['kernel']
  expected, weights = np.zeros(3), []
  for index in range(3):
    x, y, _ = source.examples(index)
    gradient = 2 * x.T @ (x @ start[:, 0] - y) / len(y)
    rate = _TRAINING.optimizer.learning_rate
    model = start[:, 0] - rate * _TRAINING.num_local_epochs * gradient
    model *= min(1, 0.2 / np.linalg.norm(model))
    expected += len(y) * model
    weights.append(len(y))
  np.testing.assert_allclose(
    state.server_state.model_weights['kernel'][:, 0],
    expected / np.sum(weights),
    rtol=1e-5,
  )


def test_secure_sums_are_the_sums_up_to_their_quantization():
  secure = tff.aggregators.MeanFactory(
    value_sum_factory=tff.aggregators.SecureSumFactory(40.0, -40.0),
    weight_sum_factory=tff.aggregators.SecureSumFactory(8.0, 0.0),
  )
  plain = _fed_avg()
  state = _run(
    aggregation_processes.with_aggregators(
      plain, {'train': {'local_weights': secure}}
    ),
    1,
  )
  # 32 bits of a range of 80 for each of three clients.
  _assert_close(
    state.server_state, _run(plain, 1, debug_runtime.DebugRuntime), atol=1e-6
  )


def _secure(replaced):
  """Returns a factory of secure sums of values below 100 for an aggregator."""
  values = tff.aggregators.SecureSumFactory(100.0, -100.0)
  if isinstance(replaced, aggregation.Sum):
    return values
  weights = tff.aggregators.SecureSumFactory(100.0, 0.0)
  return tff.aggregators.MeanFactory(values, weights)


@pytest.mark.verify
@pytest.mark.parametrize('name', sorted(registry.ALGORITHMS))
def test_phases_that_collect_nothing_run_under_secure_sums(name):
  """`docs/tff.md` says which; what others collect stays as it is."""
  model = 'convolution' if name in _NEED_LAYERS else 'logistic'
  with contract.Case(name, model) as case:
    factories = {
      purpose: {
        field: _secure(one)
        for field, one in phase.aggregation.items()
        if not isinstance(one, aggregation.Collect)
      }
      for purpose, phase in case.algorithm.phases.items()
    }
    secure = aggregation_processes.with_aggregators(case.algorithm, factories)
    with tff_runtime.TffRuntime(secure, len(contract.SIZES)) as runtime:
      state, clients, _ = toys.run_rounds(
        secure, contract.build_source(), contract.NUM_ROUNDS, runtime=runtime
      )
    expected, expected_clients, _ = case.expected
  _assert_close(state.server_state, expected, rtol=1e-4, atol=1e-5)
  _assert_close(clients, expected_clients, rtol=1e-4, atol=1e-5)


def test_states_of_processes_are_in_checkpoints(tmp_path):
  """Four rounds are two rounds, a checkpoint, and two more."""
  algorithm = aggregation_processes.with_aggregators(
    _fed_avg(), {'train': {'local_weights': _adaptive_clipping()}}
  )
  population = _source().population
  store = loop.build_store(algorithm, population, 1, '', 'memory')
  checkpoints = checkpoint.CheckpointManager(
    tmp_path, {}, 1, client_ids=population.client_ids
  )
  norms = []
  with _simulated(algorithm) as opened:
    initial = opened.server_state
    for round_num in range(1, 5):
      opened.run_round()
      state = opened.server_state
      (process,) = state.extra['train']['local_weights'].states
      norms.append(float(process['clipping_norm'][0].current_estimate))
      if round_num == 2:
        store.commit()
        checkpoints.save(round_num, state, store)
    opened.server_state = checkpoints.restore(2, initial, store)
    opened.round_num = 2
    for _ in range(2):
      opened.run_round()
  assert len({0.1, *norms}) == 5
  _assert_close(opened.server_state, state, rtol=0)


@pytest.mark.parametrize(
  'mean',
  [_UNWEIGHTED, _PRIVATE, tff.aggregators.clipping_factory(100.0, _UNWEIGHTED)],
)
def test_a_sum_by_a_factory_and_a_mean_by_an_unweighted_one(mean):
  algorithm = aggregation_processes.with_aggregators(
    running_sum.algorithm(),
    {
      running_sum.PHASE: {
        'value': tff.aggregators.clipping_factory(100.0, _SUM),
        'mean': mean,
      }
    },
  )
  with tff_runtime.TffRuntime(algorithm, 3) as runtime:
    run = simulation.Simulation(
      algorithm, running_sum.source([1.0], [2.0, 3.0], [4.0]), runtime
    )
    run.run_round()
  total, averaged, _ = run.server_state.server_state
  assert total == 10
  np.testing.assert_allclose(averaged, 10 / 3, rtol=1e-6)


def test_a_mean_of_weight_zero_is_zeros():
  """The mean of TFF is NaN then."""
  algorithm = aggregation_processes.with_aggregators(
    running_sum.algorithm(), {running_sum.PHASE: {'mean': _MEAN}}
  )
  state, _ = aggregation_processes.server_update(
    algorithm.phases[running_sum.PHASE],
    algorithm.init_server_state(tf.constant([0, 1]), 1),
    {
      'value': tf.constant(3.0),
      'mean': tf.constant(0.0),
      'said': aggregation.Collected(
        tf.constant([3.0]), tf.constant([0]), tf.constant([True])
      ),
    },
    {'mean': ({'state': (), 'result': tf.constant(np.nan)},)},
  )
  assert state.server_state.mean == 0
  assert state.extra[running_sum.PHASE]['mean'].is_started


@pytest.mark.parametrize(
  'runtime', [debug_runtime.DebugRuntime, vectorized_runtime.VectorizedRuntime]
)
def test_other_runtimes_refuse_factories(runtime):
  algorithm = aggregation_processes.with_aggregators(
    _fed_avg(), {'train': {'local_weights': _MEAN}}
  )
  with pytest.raises(errors.ConfigError, match="'local_weights' by a factory"):
    runtime(algorithm, 3)
  with pytest.raises(errors.ConfigError, match='several workers'):
    tff_runtime.TffRuntime(
      algorithm, 3, tff_config.TffConfig(workers=('a:1', 'b:1'))
    )
  with pytest.raises(errors.ConfigError, match='a second with_aggregators'):
    aggregation_processes.with_aggregators(algorithm, {})


@pytest.mark.parametrize(
  ('factories', 'words'),
  [
    (_MEAN, 'must be phase -> field -> factory, such as'),
    ({'add': _MEAN}, 'must be phase -> field -> factory, such as'),
    ({'trian': {}}, "got 'trian'"),
    ({'add': {'total': _MEAN}}, "got 'total'"),
    ({'add': {'value': _MEAN}}, 'Sum, which takes .*Unweighted'),
    ({'add': {'said': _MEAN}}, 'Collect, which takes no factory'),
    ({'add': {'mean': 3.0}}, 'WeightedMean, which takes .*, got float'),
    ({'add': {'mean': _SUM}}, "'mean' is a mean, and SumFactory is not known"),
    (
      {'add': {'mean': tff.aggregators.clipping_factory(10.0, _SUM)}},
      "'mean' is a mean, and SumFactory is not known",
    ),
    (
      {'add': {'mean': tff.aggregators.as_weighted_aggregator(_SUM)}},
      "'mean' is a mean, and SumFactory is not known",
    ),
    (
      {'add': {'mean': tff.aggregators.HadamardTransformFactory(_SUM)}},
      "'mean' is a mean, and SumFactory is not known",
    ),
    (
      {'add': {'mean': tff.aggregators.MeanFactory(_PRIVATE)}},
      'value_sum_factory of MeanFactory averages already',
    ),
    ({'add': {'value': _UNWEIGHTED}}, "'value' is a sum, but UnweightedMean"),
    (
      {'add': {'value': tff.aggregators.clipping_factory(10.0, _PRIVATE)}},
      "'value' is a sum, but DifferentiallyPrivateFactory averages",
    ),
    (
      {
        'add': {
          'mean': tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
            1.0, 3.0, 1.0, tf.TensorSpec([], tf.float32)
          )
        }
      },
      'has a tensor of shape .* changes with the rounds',
    ),
  ],
)
def test_wrong_factories_are_refused(factories, words):
  with pytest.raises(errors.ConfigError, match=words):
    aggregation_processes.with_aggregators(running_sum.algorithm(), factories)


@pytest.mark.parametrize(
  'factory',
  [_UNWEIGHTED, _PRIVATE, tff.aggregators.as_weighted_aggregator(_UNWEIGHTED)],
)
def test_a_mean_by_cluster_needs_a_factory_of_weights(factory):
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'ifca', 'cohort_size': 1}), toys.linear(3)
  )
  text = 'ClusterMean, which takes .*, not of one that averages'
  with pytest.raises(errors.ConfigError, match=text):
    aggregation_processes.with_aggregators(
      algorithm, {'train': {'local_result': factory}}
    )


def test_a_phase_of_one_learning_rate_has_no_factories_of_its_own():
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'fed_avg'}),
    toys.linear(3),
    schedule=lr_schedule.LrScheduleConfig(after_rounds=(2,)),
  )
  assert 'train@2' in algorithm.phases
  with pytest.raises(errors.ConfigError, match="'train', got 'train@2'"):
    aggregation_processes.with_aggregators(
      algorithm, {'train@2': {'local_weights': _MEAN}}
    )


def test_phases_are_checked_for_the_population_that_an_option_fits():
  section = {
    'name': 'fed_soft',
    'selection': 'weighted_full',
    'fixed_importance': [[1.0, 0.0], [0.5, 0.5]],
  }
  algorithm = registry.build_algorithm(
    registry.parse_config(section), toys.linear(3)
  )
  changed = aggregation_processes.with_aggregators(
    algorithm, {'train': {'local_weights': _MEAN}}, num_clients=2
  )
  aggregator = changed.phases['train'].aggregation['local_weights']
  assert len(aggregator.processes) == 2


def test_clients_that_are_not_drawn_need_weights():
  """pFedMe trains all clients, and those that are not drawn have weight 0."""
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'pfedme', 'cohort_size': 2}), toys.linear(3)
  )
  attacked = attacks.attack(
    algorithm,
    attacks.AttackConfig('sign_flip', client_ids=('a',)),
    np.arange(3) == 0,
  )
  for one in (algorithm, attacked):
    with pytest.raises(errors.ConfigError, match='also trains clients that ar'):
      aggregation_processes.with_aggregators(
        one, {'train': {'local_weights': _UNWEIGHTED}}
      )
    aggregation_processes.with_aggregators(
      one, {'train': {'local_weights': _MEAN}}
    )


@pytest.mark.parametrize('name', ['sign_flip', 'alie'])
def test_factories_come_after_an_attack(name):
  """Colluding clients' uploads are collected, where factories are not run."""
  algorithm = aggregation_processes.with_aggregators(
    _fed_avg(), {'train': {'local_weights': _MEAN}}
  )
  config = attacks.AttackConfig(name, client_ids=('a',))
  with pytest.raises(errors.ConfigError, match='which an attack does not take'):
    attacks.attack(algorithm, config, np.arange(3) == 0)
