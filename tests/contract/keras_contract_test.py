"""Networks of Keras layers that loop or attend: the same on every runtime.

Dropout layers are in `unit_dropout_contract_test.py`.
"""

import pytest
import tensorflow as tf

from tests.testing import accelerator, contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import errors
from tff_algos.models import keras_models
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_runtime

L = tf.keras.layers
_NUM_CLIENTS = 4


def _convolution(input_shape, num_outputs):
  return tf.keras.Sequential(
    [
      L.Input(input_shape),
      L.Conv2D(4, 3, activation='relu'),
      L.GroupNormalization(2),
      L.GlobalAveragePooling2D(),
      L.Dense(num_outputs),
    ]
  )


def _gru(input_shape, num_outputs):
  return tf.keras.Sequential(
    [L.Input(input_shape), L.GRU(3), L.Dense(num_outputs)]
  )


def _unrolled_gru(input_shape, num_outputs):
  return tf.keras.Sequential(
    [L.Input(input_shape), L.GRU(3, unroll=True), L.Dense(num_outputs)]
  )


def _attention(input_shape, num_outputs):
  x = L.Input(input_shape)
  hidden = L.LayerNormalization()(x + L.MultiHeadAttention(2, 2)(x, x))
  return tf.keras.Model(x, L.Dense(num_outputs)(L.Flatten()(hidden)))


def _build(name, build_fn, shape):
  options = {'name': name, 'cohort_size': 3}
  if name == 'fed_em':
    options['num_clusters'] = 2
  model = keras_models.from_keras(build_fn, shape, 3)
  return registry.build_algorithm(registry.parse_config(options), model)


def _run(algorithm, runtime, shape):
  with runtime:
    source = toys.image_clients(_NUM_CLIENTS, shape)
    return toys.run_rounds(algorithm, source, 2, runtime=runtime)


@pytest.mark.verify
@accelerator.needed
@pytest.mark.parametrize(
  ('build_fn', 'shape'),
  [(_convolution, (4, 4, 1)), (_unrolled_gru, (3, 2)), (_attention, (3, 4))],
)
def test_pjrt_agrees(build_fn, shape):
  algorithm = _build('fed_em', build_fn, shape)
  config = pjrt_config.PjrtConfig(clients_per_block=2)
  found = _run(
    algorithm,
    pjrt_runtime.PjrtRuntime(algorithm, _NUM_CLIENTS, config),
    shape,
  )
  expected = _run(
    algorithm, debug_runtime.DebugRuntime(algorithm, _NUM_CLIENTS), shape
  )
  contract.assert_close(found, expected)


@pytest.mark.verify
@accelerator.needed
def test_pjrt_refuses_a_loop_of_keras():
  shape = (3, 2)
  algorithm = _build('fed_em', _gru, shape)
  runtime = pjrt_runtime.PjrtRuntime(algorithm, _NUM_CLIENTS)
  with pytest.raises(errors.ConfigError, match='XLA cannot compile'):
    _run(algorithm, runtime, shape)


@pytest.mark.verify
@pytest.mark.parametrize(
  ('build_fn', 'shape'),
  [(_convolution, (4, 4, 1)), (_gru, (3, 2)), (_attention, (3, 4))],
)
@pytest.mark.parametrize('name', ['fed_avg', 'fed_em'])
def test_runtimes_agree(name, build_fn, shape):
  contract.run_on_all_runtimes(
    _build(name, build_fn, shape), toys.image_clients(_NUM_CLIENTS, shape)
  )
