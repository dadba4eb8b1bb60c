"""The runtime `pjrt` with models and options that the others do not have."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import accelerator, contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import errors
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_runtime

pytestmark = [pytest.mark.verify, accelerator.needed]

_DEVICES = ('CPU:0', 'CPU:1')


def _pjrt(algorithm, devices=_DEVICES, **options):
  config = pjrt_config.PjrtConfig(clients_per_block=2, **options)
  return pjrt_runtime.PjrtRuntime(
    algorithm, len(contract.SIZES), config, devices
  )


@pytest.mark.parametrize(
  'name', ['fed_soft', 'filter_decomposition', 'per_fed_avg', 'ppfl']
)
def test_convolutions_computed_at_once_agree_with_a_loop(name):
  """With exact Per-FedAvg, also gradients of gradients."""
  with contract.Case(name, 'convolution') as case:
    with _pjrt(case.algorithm, form='vectorized') as runtime:
      contract.assert_close(case.run(runtime), case.expected)


def _first_words():
  """Clients of `toys.token_clients` whose label is the next word alone."""
  clients = toys.token_clients([3, 6, 1])
  return toys.ToySource(
    [
      one._replace(y=one.y[:, 0])
      for one in map(clients.examples, range(clients.population.num_clients))
    ]
  )


def _model(section, source):
  x = source.examples(0).x
  words = {}
  if x.dtype == np.int32:
    words = {
      'vocabulary': ('a', 'b', 'c', 'd'),
      'special_ids': {'padding': 0, 'unknown': 5},
    }
  return toys.build(
    section, x.shape[1:], 6, input_dtype=tf.as_dtype(x.dtype), **words
  )


_LSTM = {'hidden_size': 3, 'embedding_size': 2, 'recurrence': 'unrolled'}


@pytest.mark.parametrize('form', ['loop', 'vectorized'])
@pytest.mark.parametrize(
  ('section', 'side'),
  [
    ({'name': 'resnet18'}, 4),
    ({'name': 'mobilenet_v2'}, 4),
    ({'name': 'lenet', 'variant': 'fed_pac'}, 16),
    ({'name': 'character_lstm', **_LSTM}, 0),
    ({'name': 'word_lstm', 'dense_size': 2, **_LSTM}, 0),
  ],
  ids=lambda one: one['name'] if isinstance(one, dict) else str(one),
)
def test_models_agree(section, side, form):
  source = toys.image_clients(3, (side, side, 1)) if side else _first_words()
  _assert_agrees(_model(section, source), source, form)


def test_a_transformer_agrees():
  _assert_agrees(toys.transformer(), toys.token_clients([3, 6, 1]), 'auto')


def _assert_agrees(model, source, form):
  """Compares a round of one local step with the vectorized runtime's.

  One of MobileNet's two million weights, vectorized, is 1.1e-5 off: its sums
  are rounded in dozens of layers.
  """
  section = contract.section('fed_avg', 'mlp')
  section['local_training'] = {'num_local_steps': 1, 'batch_size': 4}
  algorithm = registry.build_algorithm(registry.parse_config(section), model)
  with toys.graph_runtime(algorithm, 3) as runtime:
    expected = toys.run_rounds(algorithm, source, 1, runtime=runtime)
  contract.assert_valid(expected)
  with _pjrt(algorithm, (), form=form) as runtime:
    found = toys.run_rounds(algorithm, source, 1, runtime=runtime)
  tf.nest.map_structure(
    lambda one, other: np.testing.assert_allclose(one, other, 1e-5, 3e-5),
    found[0],
    expected[0],
  )


def test_a_fused_lstm_is_refused_with_what_to_set():
  """XLA does not know the operation; `recurrence` `'unrolled'` has others."""
  source = _first_words()
  section = {**_LSTM, 'name': 'word_lstm', 'recurrence': 'fused'}
  algorithm = registry.build_algorithm(
    registry.parse_config(contract.section('fed_avg', 'mlp')),
    _model(section, source),
  )
  with (
    _pjrt(algorithm) as runtime,
    pytest.raises(errors.ConfigError, match='BlockLSTM'),
  ):
    toys.run_rounds(algorithm, source, 1, runtime=runtime)


@pytest.mark.parametrize(
  ('section', 'form'),
  [
    ({'name': 'mlp', 'hidden_sizes': [5]}, 'auto'),
    ({'name': 'letters_cnn'}, 'loop'),
    ({'name': 'letters_cnn'}, 'vectorized'),
  ],
)
def test_bfloat16_rounds_as_much_as_on_the_vectorized_runtime(section, form):
  """XLA rounds elsewhere, so the errors are compared, not the weights."""

  def end(compute_dtype, build):
    model = toys.build({**section, 'compute_dtype': compute_dtype}, (4, 4, 1))
    algorithm = registry.build_algorithm(
      registry.parse_config(contract.section('fed_avg', 'mlp')), model
    )
    with build(algorithm, len(contract.SIZES)) as runtime:
      source = contract.build_source()
      state, *_ = toys.run_rounds(algorithm, source, 2, runtime=runtime)
    leaves = tf.nest.flatten(state.model_weights)
    return tf.concat([tf.reshape(leaf, [-1]) for leaf in leaves], 0)

  exact = end('float32', toys.graph_runtime)
  expected = tf.norm(end('bfloat16', toys.graph_runtime) - exact)
  found = tf.norm(
    end(
      'bfloat16',
      lambda algorithm, _: _pjrt(algorithm, (), form=form),
    )
    - exact
  )
  assert expected / 4 < found < 2 * expected
