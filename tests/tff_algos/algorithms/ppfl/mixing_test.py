"""Tests of the mixing modes against NumPy in float64."""

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, exportable, points, toys
from tff_algos.algorithms.ppfl import mixing
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import precision

_MEMBERSHIP = np.array([0.6, 0.1, 0.3])
_X = np.random.default_rng(2).normal(size=(7, 4, 4, 1)).astype(np.float32)


def _build(mode, canonical=('all',), model=None, num_canonical=3):
  return mixing.build(model or toys.mlp(), num_canonical, canonical, mode)


def _weights(mixture):
  """Random ones, no bias 0."""
  generator = np.random.default_rng(1)
  random = {
    name: generator.normal(size=[3, *leaf.shape]).astype(np.float32)
    for name, leaf in mixture.model.weights_spec().items()
  }
  return OrderedDict(
    shared={
      name: tf.constant(stack[0])
      for name, stack in random.items()
      if name not in mixture.canonical
    },
    canonical={name: tf.constant(random[name]) for name in mixture.canonical},
  )


def _apply(mixture, membership=_MEMBERSHIP):
  return mixture.apply(
    _weights(mixture), tf.constant(membership, tf.float32), tf.constant(_X)
  ).numpy()


def _layers(mixture, k):
  """Kernels and biases of canonical model k, float64."""
  stacked = mixture.stack(_weights(mixture))
  names = ('dense_0/kernel', 'dense_0/bias', 'dense_1/kernel', 'dense_1/bias')
  return [np.asarray(stacked[name], np.float64)[k] for name in names]


def _logits(kernel, bias, kernel_1, bias_1):
  hidden = np.maximum(_X.reshape(7, -1) @ kernel + bias, 0)
  return hidden @ kernel_1 + bias_1


@pytest.mark.parametrize('canonical', ['all', 'last_layer', 'dense_0'])
def test_modes_are_their_formulas(canonical):
  found = {mode: _apply(_build(mode, (canonical,))) for mode in mixing.MIXINGS}
  mixture = _build('outputs', (canonical,))
  models = [_layers(mixture, k) for k in range(3)]
  logits = np.stack([_logits(*model) for model in models])
  mixed = [
    np.tensordot(_MEMBERSHIP, parts, axes=1)
    for parts in map(np.stack, zip(*models, strict=True))
  ]
  probabilities = np.tensordot(_MEMBERSHIP, exportable.softmax(logits), axes=1)
  close = {'rtol': 1e-4, 'atol': 1e-5}
  np.testing.assert_allclose(
    found['outputs'], np.tensordot(_MEMBERSHIP, logits, axes=1), **close
  )
  np.testing.assert_allclose(found['parameters'], _logits(*mixed), **close)
  np.testing.assert_allclose(
    np.exp(found['probabilities']), probabilities, **close
  )
  # Layer by layer: the mixture of what each layer's models say.
  hidden = _X.reshape(7, -1)
  for layer in (0, 2):
    hidden = sum(
      share * (hidden @ model[layer] + model[layer + 1])
      for share, model in zip(_MEMBERSHIP, models, strict=True)
    )
    if layer == 0:
      hidden = np.maximum(hidden, 0)
  np.testing.assert_allclose(found['parameters'], hidden, **close)


def test_modes_differ_where_they_may():
  found = {mode: _apply(_build(mode)) for mode in mixing.MIXINGS}
  assert np.abs(found['outputs'] - found['parameters']).max() > 0.01
  likely = exportable.softmax(found['parameters'])
  assert np.abs(np.exp(found['probabilities']) - likely).max() > 0.01
  last = {
    mode: _apply(_build(mode, ('last_layer',))) for mode in mixing.MIXINGS
  }
  likely = exportable.softmax(last['outputs'])
  assert np.abs(np.exp(last['probabilities']) - likely).max() > 0.01


@pytest.mark.parametrize('model', [toys.mlp, contract.MODELS['convolution']])
def test_what_is_the_same_function_is_computed_as_one_model(model):
  is_mlp = model is toys.mlp
  last = ('last_layer',) if is_mlp else ('dense',)
  whole, head = (
    _build('outputs', names, model()) for names in (('all',), last)
  )
  assert not whole.is_affine
  assert not whole.mixes_parameters
  assert head.is_affine
  assert head.mixes_parameters
  assert not _build('probabilities', last, model()).mixes_parameters
  assert _build('probabilities', model=toys.linear(3)).mixes_parameters
  assert _build('outputs', model=toys.linear(3)).mixes_parameters
  assert _build('parameters', model=model()).mixes_parameters


def _mlp(shape, size):
  return toys.build({'name': 'mlp', 'hidden_sizes': (size,)}, shape)


def _rectified():
  linear = toys.linear(1)
  return dataclasses.replace(
    linear,
    apply=lambda weights, x: tf.nn.relu(linear.apply(weights, x)),
  )


@pytest.mark.parametrize(
  ('model', 'canonical'),
  [
    # Units that do not switch on the inputs that are tried.
    (_mlp((1,), 3), 'dense_0/kernel'),
    # Roundings as large as the differences.
    (precision.compute_in(_mlp((4, 4, 1), 16), 'bfloat16'), 'dense_0'),
    # An activation of the last layer.
    (_rectified(), 'all'),
  ],
)
def test_models_that_are_not_affine_are_not_taken_as_such(model, canonical):
  mixture = _build('outputs', (canonical,), model)
  assert not mixture.is_affine
  assert not mixture.mixes_parameters


def test_affine_modes_have_the_same_values_and_gradients():
  """PPFL1 is PPFL2, computed as three models and as one."""
  one = _build('outputs', ('last_layer',))
  three = mixing.Mixture(
    one.model, 3, one.canonical, 'outputs', True, mixes_parameters=False
  )
  weights = _weights(one)
  found = []
  for mixture in (one, three):
    membership = tf.constant(_MEMBERSHIP, tf.float32)
    with tf.GradientTape() as tape:
      tape.watch((weights, membership))
      outputs = mixture.apply(weights, membership, tf.constant(_X))
      value = tf.reduce_sum(tf.sin(outputs))
    found.append((outputs, tape.gradient(value, (weights, membership))))
  tf.nest.map_structure(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *found
  )


def test_share_of_the_canonical_gradient_is_the_membership():
  mixture = _build('parameters')
  weights = _weights(mixture)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    outputs = mixture.apply(
      weights, tf.constant(_MEMBERSHIP, tf.float32), tf.constant(_X)
    )
    value = tf.reduce_mean(tf.sin(outputs))
  for gradient in tape.gradient(value, weights)['canonical'].values():
    whole = tf.reduce_sum(gradient, axis=0)
    for share, one in zip(_MEMBERSHIP, gradient, strict=True):
      np.testing.assert_allclose(one, share * whole, rtol=1e-4, atol=1e-7)


def test_one_hot_membership_is_that_model():
  for mode in mixing.MIXINGS:
    mixture = _build(mode)
    expected = _logits(*_layers(mixture, 2))
    found = _apply(mixture, [0, 0, 1])
    np.testing.assert_allclose(
      exportable.softmax(found),
      exportable.softmax(expected),
      rtol=1e-4,
      atol=1e-5,
    )


def test_canonical_names_that_name_nothing_are_refused():
  text = "canonical: 'dense_7' is neither a weight nor a layer of model 'mlp'"
  with pytest.raises(errors.ConfigError, match=text):
    _build('outputs', ('dense_7',))
  with pytest.raises(
    errors.ConfigError, match=r'canonical \(\) names no weight'
  ):
    _build('outputs', ())
  body = ('all_but_last_layer',)
  assert _build('outputs', body).canonical == ('dense_0/kernel', 'dense_0/bias')
  with pytest.raises(errors.ConfigError, match='names no weight of model'):
    _build('outputs', body, toys.linear(2))


@pytest.mark.parametrize(
  ('canonical', 'is_affine'),
  [('head', True), ('all', False), ('positions', False)],
)
def test_models_of_tokens_are_tried_with_tokens(canonical, is_affine):
  mixture = _build('outputs', (canonical,), toys.transformer())
  assert mixture.is_affine == is_affine
  assert mixture.mixes_parameters == is_affine


def test_parts_of_a_model_and_their_number():
  """theta_com once and the rest K times: 16 * 5 + 5 and 5 * 3 + 3 weights."""
  mixture = _build('outputs', ('last_layer',))
  weights = mixture.initialize(tf.constant([3, 4]))
  assert mixture.num_parameters == 85 + 3 * 18
  assert set(weights['shared']) == {'dense_0/kernel', 'dense_0/bias'}
  kernels = weights['canonical']['dense_1/kernel'].numpy()
  assert kernels.shape == (3, 5, 3)
  assert len(np.unique(kernels)) == kernels.size
  stacked = mixture.stack(weights)
  assert list(stacked) == list(toys.mlp().weights_spec())
  shared = stacked['dense_0/kernel'].numpy()
  np.testing.assert_array_equal(shared[0], shared[2])


def test_canonical_weights_that_start_equal_are_refused():
  text = 'canonical weights of model .mlp., dense_1/bias, always start with the'
  with pytest.raises(errors.ConfigError, match=text):
    _build('outputs', ('dense_1/bias',))
  _build('outputs', ('dense_1/bias',), num_canonical=1)


def test_served_model_is_the_mixture():
  mixture = _build('probabilities')
  served = mixture.personalized_model()
  start = served.initialize(tf.constant([1, 2]))
  np.testing.assert_allclose(start['membership'], [1 / 3] * 3)
  weights = mixture.personalize(
    _weights(mixture), tf.constant(_MEMBERSHIP, tf.float32)
  )
  np.testing.assert_allclose(
    served.apply(weights, tf.constant(_X)), _apply(mixture), rtol=1e-6
  )
  assert served.task == model_lib.CLASSIFICATION


def test_any_model_may_be_mixed():
  """One with a loss of its own keeps it."""
  mixture = _build('outputs', model=points.model(2))
  membership = tf.constant(_MEMBERSHIP, tf.float32)
  weights = OrderedDict(
    shared=OrderedDict(), canonical={'point': tf.eye(3)[:, :2]}
  )
  model = mixture.at(membership)
  outputs = model.apply(weights, tf.zeros([1, 2]))
  np.testing.assert_allclose(outputs, [[-0.6, -0.1]], rtol=1e-6)
  losses = model.example_losses(outputs, tf.zeros([1]))
  np.testing.assert_allclose(losses, [0.37], rtol=1e-6)
