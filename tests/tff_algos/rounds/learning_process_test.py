"""TFF's learning process of an algorithm, under TFF's own context."""

import asyncio
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

import tff_algos
from tests.testing import contract, tiny_convolution, toys
from tff_algos.core import errors, tff_compat
from tff_algos.runtimes import debug_runtime

tff = tff_compat.tff
_ONE_BATCH = {'batch_size': 100}


def _algorithm(name='fed_avg', **options):
  options['local_training'] = _ONE_BATCH
  section = tff_algos.parse_algorithm({'name': name, **options})
  return tff_algos.build_algorithm(section, toys.linear(3))


def test_two_rounds_equal_ours(native_context):
  algorithm = _algorithm(
    cohort_size=0,
    proximal_weight=0.5,
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


def _functional_model():
  """Returns `toys.linear(3)` as a model of TFF with its mean squared error."""

  @tf.function
  def predict(weights, x, training):
    del training
    return x @ weights[0][0]

  @tf.function
  def loss(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean(tf.square(output[:, 0] - label))

  return tff.learning.models.FunctionalModel(
    initial_weights=((np.zeros((3, 1), np.float32),), ()),
    predict_on_batch_fn=predict,
    loss_fn=loss,
    metrics_fns=tff.learning.metrics.create_functional_metric_fns(
      lambda: OrderedDict(error=tf.keras.metrics.MeanSquaredError())
    ),
    input_spec=(
      tf.TensorSpec([None, 3], tf.float32),
      tf.TensorSpec([None], tf.float32),
    ),
  )


def test_state_and_metrics_go_through_the_managers_of_tff(
  native_context, tmp_path
):
  """Only the process itself is ours."""
  process = tff_algos.learning_process(_algorithm(), seed=3)
  generator = np.random.default_rng(0)
  x = generator.normal(size=(2, 4, 3)).astype(np.float32)
  y = x.sum(axis=-1)
  datasets = [
    tf.data.Dataset.from_tensor_slices(one).batch(4)
    for one in zip(x, y, strict=True)
  ]
  states = tff.program.FileProgramStateManager(tmp_path / 'states')
  metrics = tff.program.CSVFileReleaseManager(tmp_path / 'metrics.csv')

  async def train():
    state = process.initialize()
    for round_num in (1, 2):
      output = process.next(state, datasets)
      state = output.state
      await states.save(tf.nest.flatten(state), round_num)
      await metrics.release(output.metrics, round_num)
    first = process.initialize()
    leaves = await states.load(1, structure=tf.nest.flatten(first))
    restored = tf.nest.pack_sequence_as(first, leaves)
    return state, process.next(restored, datasets).state

  state, continued = asyncio.run(train())
  tf.nest.map_structure(np.testing.assert_array_equal, state, continued)
  rows = (tmp_path / 'metrics.csv').read_text().splitlines()
  assert rows[0].split(',') == ['key', 'client/loss', 'num_invalid']
  assert [row.split(',')[0] for row in rows[1:]] == ['1', '2']

  evaluation = tff.learning.algorithms.build_fed_eval(_functional_model())
  weights = process.get_model_weights(state)
  found = evaluation.next(
    evaluation.set_model_weights(evaluation.initialize(), weights), datasets
  ).metrics['client_work']['eval']['current_round_metrics']
  errors_by_hand = np.square((x @ weights.trainable[0])[..., 0] - y)
  np.testing.assert_allclose(found['error'], errors_by_hand.mean(), rtol=1e-5)


def test_filter_decomposition_with_its_host_fed_avg(native_context):
  section = contract.section('filter_decomposition')
  section['host'] = {
    'name': 'fed_avg',
    'cohort_size': 0,
    'local_training': _ONE_BATCH,
  }
  section['local_atoms'] = {}
  algorithm = tff_algos.build_algorithm(
    tff_algos.parse_algorithm(section), tiny_convolution.build()
  )
  source = toys.image_clients(2)
  process = tff_algos.learning_process(algorithm, seed=3)
  datasets = [
    tf.data.Dataset.from_tensors((one.x, one.y))
    for one in map(source.examples, range(2))
  ]
  output = process.next(process.initialize(), datasets)
  with debug_runtime.DebugRuntime(algorithm, 2) as runtime:
    ours = tff_algos.Simulation(algorithm, source, runtime, seed=3)
    ours.run_round()
  for one, other in zip(
    process.get_model_weights(output.state).trainable,
    ours.server_state.model_weights.values(),
    strict=True,
  ):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  ('name', 'reason'),
  [
    ('fed_soft', 'has 2 phases'),
    ('ifca', 'keeps a state at each client'),
    ('cfl', 'sends each client an input of its own'),
  ],
)
def test_what_is_no_learning_process_is_refused(name, reason):
  with pytest.raises(errors.ConfigError, match=reason):
    tff_algos.learning_process(_algorithm(name))


def test_a_robust_rule_is_refused_as_it_collects():
  """And not as a rule for which one client is too few."""
  rule = {'rule': 'krum', 'num_byzantine': 1}
  algorithm = _algorithm(cohort_size=0, aggregation=rule)
  with pytest.raises(errors.ConfigError, match='one by one'):
    tff_algos.learning_process(algorithm)


def test_a_state_of_aggregators_is_refused():
  factory = tff.aggregators.MeanFactory()
  algorithm = tff_algos.with_aggregators(
    _algorithm(), {'train': {'local_weights': factory}}
  )
  with pytest.raises(errors.ConfigError, match='a state of aggregators'):
    tff_algos.learning_process(algorithm)
