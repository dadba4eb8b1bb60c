"""Dropout of hidden units: the same on every runtime, refused where it cannot be."""

import dataclasses

import pytest
import tensorflow as tf

from tests.testing import contract, tiny_convolution, toys
from tff_algos.algorithms import registry
from tff_algos.core import errors
from tff_algos.models import keras_models
from tff_algos.numerics import unit_dropout
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.vectorized import vectorized_runtime
from tff_algos.stages.client import local_training

_NUM_CLIENTS = 5
_SHAPE = (6,)
_ALGORITHMS = {
  'fed_avg': {'cohort_size': 4},
  # Trains stacked models.
  'fed_em': {'num_clusters': 2, 'cohort_size': 4},
}
# Algorithms whose clients take gradients of their own, not local training.
_ENVELOPE = {'num_local_steps': 2, 'batch_size': 4, 'num_proximal_steps': 2}
_OWN_GRADIENTS = {
  'ifca': {'averaging': 'gradients', 'cohort_size': 4},
  'l2gd': {'client_learning_rate': 0.1, 'aggregation_prob': 0.5},
  'per_fed_avg': {'cohort_size': 4, 'variant': 'hessian_free'},
  'pfedkm': {'num_clusters': 2, 'local_training': _ENVELOPE},
  'pfedme': {'cohort_size': 4, 'local_training': _ENVELOPE},
}


def _mlp():
  """Clients are computed several at once."""
  mlp = toys.mlp(_SHAPE)
  return dataclasses.replace(
    mlp, apply=lambda weights, x: mlp.apply(weights, unit_dropout.drop(x, 0))
  )


def _convolution():
  """Clients are computed one after the other."""

  def activate(hidden):
    return unit_dropout.drop(tf.reshape(tf.nn.relu(hidden), [-1, 8]), 0)

  return tiny_convolution.build(activation=activate)


def _build(name, model, rate):
  options = {'name': name, **_ALGORITHMS[name]}
  options['local_training'] = {'unit_dropout_rate': rate, 'batch_size': 4}
  return registry.build_algorithm(registry.parse_config(options), model)


def _run(algorithm, runtime):
  shape = algorithm.cluster_model.input_shape
  with runtime:
    source = toys.image_clients(_NUM_CLIENTS, shape)
    return toys.run_rounds(algorithm, source, 2, runtime=runtime)


@pytest.mark.parametrize(
  ('name', 'build_model'),
  [
    ('fed_avg', _mlp),
    *(
      pytest.param(*case, marks=pytest.mark.verify)
      for case in (
        ('fed_avg', _convolution),
        ('fed_em', _mlp),
        ('fed_em', _convolution),
      )
    ),
  ],
)
def test_runtimes_agree(name, build_model):
  _assert_runtimes_agree(
    _build(name, build_model(), 0.5), _build(name, build_model(), 0.0)
  )


@pytest.mark.verify
@pytest.mark.parametrize('name', ['fed_avg', 'fed_em'])
def test_runtimes_agree_on_dropout_layers_of_keras(name):
  _assert_runtimes_agree(
    _build(name, _keras(0.5), 0.0), _build(name, _keras(0.0), 0.0)
  )


@pytest.mark.parametrize('name', _OWN_GRADIENTS)
def test_gradients_of_an_algorithm_drop_units(name):
  algorithm, plain = _with_own_gradients(name)
  found = _run(algorithm, debug_runtime.DebugRuntime(algorithm, _NUM_CLIENTS))
  _assert_drops(found, plain)


@pytest.mark.verify
@pytest.mark.parametrize('name', _OWN_GRADIENTS)
def test_runtimes_agree_on_dropout_in_gradients_of_an_algorithm(name):
  _assert_runtimes_agree(*_with_own_gradients(name))


def _with_own_gradients(name):
  """Returns the algorithm with a dropout layer of Keras, and without."""
  options = registry.parse_config({'name': name, **_OWN_GRADIENTS[name]})
  return [
    registry.build_algorithm(options, _keras(rate)) for rate in (0.5, 0.0)
  ]


def _keras(rate):
  """A network with a dropout layer of Keras."""

  def network(input_shape, num_outputs):
    layers = tf.keras.layers
    return tf.keras.Sequential(
      [
        layers.Input(input_shape),
        layers.Dense(8, activation='relu'),
        layers.Dropout(rate),
        layers.Dense(num_outputs),
      ]
    )

  return keras_models.from_keras(network, _SHAPE, toys.mlp().num_outputs)


def _assert_runtimes_agree(algorithm, plain):
  """Compares runtimes, and the algorithm with one that drops no units."""
  shape = algorithm.cluster_model.input_shape
  source = toys.image_clients(_NUM_CLIENTS, shape)
  _assert_drops(contract.run_on_all_runtimes(algorithm, source), plain)


def _assert_drops(found, plain):
  """Checks that states differ from those of an algorithm that drops no units."""
  contract.assert_valid(found)
  without = _run(plain, debug_runtime.DebugRuntime(plain, _NUM_CLIENTS))
  with pytest.raises(AssertionError):
    contract.assert_all_close(without[0], found[0])


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({}, 'unit_dropout_rate must be a number >= 0 and < 1, got 1.0'),
    ({'solver': 'exact', 'unit_dropout_rate': 0.5}, "0.5, but solver 'exact'"),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    local_training.LocalTrainingConfig(**{'unit_dropout_rate': 1.0, **options})


def test_a_model_without_a_layer_for_it_is_refused_before_any_round():
  text = 'unit_dropout_rate is 0.5, but the model has no layer'
  options = {'name': 'fed_avg', 'local_training': {'unit_dropout_rate': 0.5}}
  algorithm = registry.build_algorithm(
    registry.parse_config(options), toys.mlp(_SHAPE)
  )
  with pytest.raises(errors.ConfigError, match=text):
    vectorized_runtime.VectorizedRuntime(algorithm, 3)
