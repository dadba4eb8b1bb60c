"""Tests of models that compute in bfloat16, against float32 and NumPy."""

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, toys
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import precision, registry
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.tff import tff_runtime
from tff_algos.runtimes.vectorized import vectorized_runtime

_SHAPE = (8, 8, 1)
# bfloat16 keeps 8 significant bits: a rounding errs by at most this share.
_UNIT = 2.0**-8
_NETWORKS = {
  'mlp': {'name': 'mlp', 'hidden_sizes': [64, 64]},
  'mlp with group norm': {
    'name': 'mlp',
    'hidden_sizes': [64, 64],
    'normalization': 'group',
  },
  'letters_cnn': {'name': 'letters_cnn'},
  'letters_cnn with group norm': {
    'name': 'letters_cnn',
    'normalization': 'group',
  },
}


def _build(section, compute_dtype='bfloat16', shape=_SHAPE):
  is_regression = section['name'] == 'linear_regression'
  return toys.build(
    {**section, 'compute_dtype': compute_dtype},
    shape,
    1 if is_regression else 3,
    'regression' if is_regression else 'classification',
  )


def _examples(seed):
  x = tf.random.stateless_normal([16, *_SHAPE], [seed, 2])
  return x, tf.random.stateless_uniform([16], [seed, 3], 0, 3, tf.int32)


def _outputs_and_gradient(model, weights, x, labels):
  with tf.GradientTape() as tape:
    tape.watch(weights)
    outputs = model.apply(weights, x)
    loss = tf.reduce_mean(model.example_losses(outputs, labels))
  return outputs, tape.gradient(loss, weights)


def _relative_error(actual, expected):
  """Returns the Euclidean distance, as a share of the expected length."""
  actual, expected = (
    np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(structure)])
    for structure in (actual, expected)
  )
  return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize('name', ['linear_regression', 'logistic_regression'])
def test_regressions_err_by_four_roundings_at_most(name):
  """Of the weight, the feature, their summed product and that plus the bias."""
  model = _build({'name': name})
  for seed in range(8):
    weights = model.initialize(tf.constant([seed, 1]))
    weights['bias'] = weights['bias'] + 0.3
    x, _ = _examples(seed)
    flat = np.float64(x).reshape(len(x), -1)
    kernel, bias = (weights[key].numpy() for key in ('kernel', 'bias'))
    sizes = np.abs(flat) @ np.abs(kernel) + np.abs(bias)
    error = np.abs(model.apply(weights, x) - (flat @ kernel + bias))
    assert (error <= ((1 + _UNIT) ** 4 - 1) * sizes).all()
    assert error.max() > 1e-2 * _UNIT


@pytest.mark.parametrize('name', _NETWORKS)
def test_networks_stay_near_float32(name):
  """Outputs within 1.6 %; gradients within 12.5 %.

  A share u of the hidden units lies so near 0 that it is switched on or off by
  a rounding error u; that alone moves a gradient by about the root of u, 6 %.
  """
  network, exact = _build(_NETWORKS[name]), _build(_NETWORKS[name], 'float32')
  for seed in range(4):
    weights = network.initialize(tf.constant([seed, 1]))
    examples = _examples(seed)
    outputs, gradient = _outputs_and_gradient(network, weights, *examples)
    expected = _outputs_and_gradient(exact, weights, *examples)
    assert 0 < _relative_error(outputs, expected[0]) < 4 * _UNIT
    assert 0 < _relative_error(gradient, expected[1]) < 32 * _UNIT


@pytest.mark.parametrize('name', _NETWORKS)
def test_weights_outputs_and_gradients_are_float32(name):
  model = _build(_NETWORKS[name])
  weights = model.initialize(tf.constant([0, 1]))
  outputs, gradient = _outputs_and_gradient(model, weights, *_examples(0))
  for leaf in tf.nest.flatten((weights, outputs, gradient)):
    assert leaf.dtype == tf.float32


@pytest.mark.parametrize('name', _NETWORKS)
def test_the_products_are_computed_in_bfloat16(name):
  model = _build(_NETWORKS[name])
  weights = model.weights_spec()
  x = tf.TensorSpec([None, *_SHAPE])
  graph = tf.function(model.apply).get_concrete_function(weights, x).graph
  products = [
    op for op in graph.get_operations() if op.type in ('MatMul', 'Conv2D')
  ]
  assert products
  for op in products:
    assert op.outputs[0].dtype == tf.bfloat16


def test_ids_of_tokens_are_not_rounded():
  """bfloat16 would make 256 of 257."""
  plain = model_lib.Model(
    'one_hot',
    model_lib.CLASSIFICATION,
    (1,),
    300,
    lambda seed: OrderedDict(scale=tf.ones([300])),
    lambda weights, x: (
      tf.one_hot(tf.cast(x[:, 0], tf.int32), 300, dtype=weights['scale'].dtype)
      * weights['scale']
    ),
    vectorizes=True,
    input_dtype=tf.int32,
  )
  model = precision.compute_in(plain, 'bfloat16')
  outputs = model.apply(model.initialize(None), tf.constant([[257], [2]]))
  assert np.argmax(outputs, axis=1).tolist() == [257, 2]


def test_float32_is_the_model_itself():
  model = toys.mlp()
  assert precision.compute_in(model, 'float32') is model


@pytest.mark.parametrize('name', sorted(registry.MODELS))
def test_every_model_refuses_float16(name):
  text = "^config.model: compute_dtype 'float16' is refused: .* scale"
  with pytest.raises(errors.ConfigError, match=text):
    registry.parse_config({'name': name, 'compute_dtype': 'float16'})


@pytest.mark.parametrize(
  ('compute_dtype', 'text'),
  [
    ('float64', "one of 'float32', 'bfloat16', got 'float64'"),
    (16, 'config.model.compute_dtype must be str, got 16'),
  ],
)
def test_other_types_are_refused(compute_dtype, text):
  with pytest.raises(errors.ConfigError, match=text):
    registry.parse_config({'name': 'mlp', 'compute_dtype': compute_dtype})


_RUNTIMES = {
  'vectorized': vectorized_runtime.VectorizedRuntime,
  'debug': debug_runtime.DebugRuntime,
  'tff': tff_runtime.TffRuntime,
}


@pytest.mark.verify
@pytest.mark.parametrize(
  'section',
  [{'name': 'mlp', 'hidden_sizes': [5]}, {'name': 'letters_cnn'}],
  ids=['vectorized', 'looped'],
)
def test_every_runtime_trains_to_nearly_the_same_float32_weights(section):
  """What they round differently is small beside what they learn."""
  model = _build(section, shape=(4, 4, 1))
  algorithm = algorithms.build_algorithm(
    algorithms.parse_config(
      {
        'name': 'fed_soft',
        **contract.options('fed_soft'),
        'local_training': contract.LOCAL_TRAINING,
      }
    ),
    model,
  )
  source = contract.build_source()
  start, _ = toys.initial_states(algorithm, source.population)
  ends = {}
  for name, build in _RUNTIMES.items():
    with build(algorithm, len(contract.SIZES)) as runtime:
      ends[name] = toys.run_rounds(algorithm, source, 2, runtime=runtime)[0]
  learned = _relative_error(ends['debug'].cluster_models, start.cluster_models)
  for end in ends.values():
    for leaf in tf.nest.flatten(end.cluster_models):
      assert leaf.dtype == np.float32
    apart = _relative_error(end.cluster_models, ends['debug'].cluster_models)
    assert apart < 0.1 * learned
