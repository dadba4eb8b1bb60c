"""Networks of Keras layers that loop or attend: the same on every runtime.

Dropout layers are in `unit_dropout_contract_test.py`.
"""

import pytest
import tensorflow as tf

from tests.testing import contract, toys
from tff_algos.algorithms import registry
from tff_algos.models import keras_models
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.tff import tff_runtime
from tff_algos.runtimes.vectorized import vectorized_runtime

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


def _attention(input_shape, num_outputs):
  x = L.Input(input_shape)
  hidden = L.LayerNormalization()(x + L.MultiHeadAttention(2, 2)(x, x))
  return tf.keras.Model(x, L.Dense(num_outputs)(L.Flatten()(hidden)))


@pytest.mark.verify
@pytest.mark.parametrize(
  ('build_fn', 'shape'),
  [(_convolution, (4, 4, 1)), (_gru, (3, 2)), (_attention, (3, 4))],
)
@pytest.mark.parametrize('name', ['fed_avg', 'fed_em'])
def test_runtimes_agree(name, build_fn, shape):
  model = keras_models.from_keras(build_fn, shape, 3)
  options = {'name': name, 'cohort_size': 3}
  if name == 'fed_em':
    options['num_clusters'] = 2
  algorithm = registry.build_algorithm(registry.parse_config(options), model)
  results = []
  for runtime in (
    debug_runtime.DebugRuntime(algorithm, _NUM_CLIENTS),
    vectorized_runtime.VectorizedRuntime(
      algorithm, _NUM_CLIENTS, vectorized_runtime.VectorizedConfig(2)
    ),
    tff_runtime.TffRuntime(algorithm, _NUM_CLIENTS),
  ):
    with runtime:
      source = toys.image_clients(_NUM_CLIENTS, shape)
      results.append(toys.run_rounds(algorithm, runtime, source, 2))
  for other in results[1:]:
    contract.assert_close(other, results[0])
