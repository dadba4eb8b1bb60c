"""TFF's functional models: the same predictions and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms import registry
from tff_algos.core import errors
from tff_algos.core.tff_compat import tff
from tff_algos.models import functional_models

_KERNEL = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
_SPEC = (
  tf.TensorSpec([None, 4], tf.float32),
  tf.TensorSpec([None], tf.int32),
)


_TRAINABLE = (_KERNEL, np.ones(3, np.float32))


def _functional(predict=None, others=(), spec=_SPEC, trainable=_TRAINABLE):
  def plain(weights, x, training):
    del training
    (kernel, bias), _ = weights
    return tf.matmul(x, kernel) + bias

  return tff.learning.models.FunctionalModel(
    initial_weights=(trainable, others),
    predict_on_batch_fn=tf.function(predict or plain),
    loss_fn=tf.function(lambda output, label, sample_weight=None: 0.0),
    input_spec=spec,
  )


def test_it_predicts_as_tff_does():
  functional = _functional()
  model = functional_models.from_functional(functional, 3)
  weights = model.initialize(tf.constant([0, 1]))
  np.testing.assert_array_equal(weights['weight_0'], _KERNEL)
  x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
  expected = functional.predict_on_batch(functional.initial_weights, x, False)
  np.testing.assert_array_equal(model.apply(weights, x), expected)
  assert model.vectorizes and model.input_shape == (4,)


def test_it_trains():
  model = functional_models.from_functional(_functional(), 3)
  section = {'name': 'fed_avg', 'cohort_size': 0}
  algorithm = registry.build_algorithm(registry.parse_config(section), model)
  state, *_ = toys.run_rounds(algorithm, toys.image_clients(3, (4,)), 1)
  trained = state.model_weights['weight_0']
  assert (np.asarray(trained) != _KERNEL).any()


def test_a_keras_model_goes_to_from_keras():
  network = tf.keras.Sequential(
    [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(3)]
  )
  functional = tff.learning.models.functional_model_from_keras(
    network, tf.keras.losses.SparseCategoricalCrossentropy(), _SPEC
  )
  with pytest.raises(errors.ConfigError, match='to tff_algos.from_keras'):
    functional_models.from_functional(functional, 3)


def _drops(weights, x, training):
  outputs = tf.matmul(x, weights[0][0])
  return tf.nn.dropout(outputs, 0.5) if training else outputs


@pytest.mark.parametrize(
  ('functional', 'text'),
  [
    (_functional(others=(np.zeros(3),)), '1 weights that are not trainable'),
    (_functional(trainable=()), "'functional' has no weights to train"),
    (
      _functional(_drops),
      r"'functional' has state or draws .*\(RandomUniform\)",
    ),
    (
      _functional(spec=((_SPEC[0], _SPEC[0]), _SPEC[1])),
      'must take one tensor of features',
    ),
    (
      _functional(spec=(tf.TensorSpec([None, None]), _SPEC[1])),
      r'features \[batch, ...\] of known shape',
    ),
  ],
)
def test_state_and_other_inputs_are_refused(functional, text):
  with pytest.raises(errors.ConfigError, match=text):
    functional_models.from_functional(functional, 3)
