"""TFF's learning process of an algorithm, under TFF's own context."""

import dataclasses

import numpy as np
import psutil
import pytest
import tensorflow as tf

import tff_algos
from tests.testing import toys
from tff_algos.core import errors, tff_compat
from tff_algos.rounds import aggregation
from tff_algos.runtimes import debug_runtime

_ONE_BATCH = {'batch_size': 100}


def _algorithm(name='fed_avg', **options):
  options['local_training'] = _ONE_BATCH
  section = tff_algos.parse_algorithm({'name': name, **options})
  return tff_algos.build_algorithm(section, toys.linear(3))


@pytest.fixture(name='native_context')
def _native_context():
  native = tff_compat.tff.backends.native
  before = set(psutil.Process().children())
  with tff_compat.in_context(native.create_sync_local_cpp_execution_context()):
    yield
  for child in set(psutil.Process().children()) - before:
    if child.name().startswith('worker_binary'):
      child.kill()
      child.wait()


@pytest.mark.parametrize('proximal_weight', [0.5])
def test_two_rounds_equal_ours(native_context, proximal_weight):
  algorithm = _algorithm(
    cohort_size=0,
    proximal_weight=proximal_weight,
    server_optimizer={'name': 'adam', 'learning_rate': 0.1},
  )
  source = toys.linear_clients(np.eye(3)[:2], np.full((2, 2), 0.5), [5, 3])
  process = tff_algos.learning_process(algorithm, seed=3)
  state = process.initialize()
  datasets = [
    tf.data.Dataset.from_tensor_slices((one.x, one.y)).batch(2)
    for one in map(source.examples, range(2))
  ]
  with debug_runtime.DebugRuntime(algorithm, 2) as runtime:
    ours = tff_algos.Simulation(algorithm, source, runtime, seed=3)
    for _ in range(2):
      # A client without examples changes nothing.
      output = process.next(state, [*datasets, datasets[0].take(0)])
      state = output.state
      (run,) = ours.run_round()
  weights = process.get_model_weights(state)
  np.testing.assert_allclose(
    weights.trainable[0],
    ours.server_state.model_weights['kernel'],
    rtol=1e-5,
  )
  stat = run.output.client_metrics['loss']
  np.testing.assert_allclose(
    output.metrics['client']['loss'], stat.total / stat.weight, rtol=1e-5
  )
  assert state.round_num == 2
  back = process.set_model_weights(process.initialize(), weights)
  np.testing.assert_array_equal(
    back.server_state.model_weights['kernel'], weights.trainable[0]
  )


@pytest.mark.parametrize(
  ('name', 'reason'),
  [
    ('fed_soft', 'has 2 phases'),
    ('scaffold', 'keeps a state at each client'),
    ('cfl', 'sends each client an input of its own'),
  ],
)
def test_what_is_no_learning_process_is_refused(name, reason):
  with pytest.raises(errors.ConfigError, match=reason):
    tff_algos.learning_process(_algorithm(name))


def test_collected_results_are_refused():
  algorithm = _algorithm()
  phase = algorithm.phases['train']
  collects = phase._replace(
    aggregation={'local_weights': aggregation.Collect()}
  )
  changed = dataclasses.replace(algorithm, phases={'train': collects})
  with pytest.raises(errors.ConfigError, match='one by one'):
    tff_algos.learning_process(changed)
