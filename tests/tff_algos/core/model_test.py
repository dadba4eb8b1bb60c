"""Tests of the functional model: losses by example, scores, stacking."""

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import model as model_lib

_LOGITS = np.array([[2.0, -1, 0], [0, 0, 0], [-30, 40, 10]], np.float32)
_CLASSES = np.array([0, 2, 2], np.int32)
_PREDICTIONS = np.array([[1.0], [-2], [0.5]], np.float32)
_TARGETS = np.array([3.0, -2, 0], np.float32)


def _model(task, vectorizes=True, num_outputs=1):
  return model_lib.Model(
    'toy',
    task,
    (2,),
    num_outputs,
    lambda seed: OrderedDict(
      kernel=tf.random.stateless_normal([2, num_outputs], seed)
    ),
    lambda weights, x: tf.matmul(x, weights['kernel']),
    vectorizes,
  )


def test_cross_entropy_is_in_nats_and_by_example():
  model = _model('classification', num_outputs=3)
  assert model.label_dtype == tf.int32
  logits = _LOGITS.astype(np.float64)
  expected = np.log(np.exp(logits).sum(axis=1)) - logits[range(3), _CLASSES]
  losses = model.example_losses(tf.constant(_LOGITS), tf.constant(_CLASSES))
  assert losses.shape == (3,)
  np.testing.assert_allclose(losses, expected, rtol=1e-6)


def test_accuracy_is_one_or_zero_by_example():
  model = _model('classification', num_outputs=3)
  scores = model.example_scores(tf.constant(_LOGITS), tf.constant(_CLASSES))
  assert scores.numpy().tolist() == [1, 0, 0]
  assert model.score_name == 'accuracy'


def test_squared_error_has_no_factor_one_half():
  model = _model('regression')
  assert model.label_dtype == tf.float32
  for function in (model.example_losses, model.example_scores):
    errors = function(tf.constant(_PREDICTIONS), tf.constant(_TARGETS))
    np.testing.assert_allclose(errors, [4, 0, 0.25])
  assert model.score_name == 'mse'


@pytest.mark.parametrize('task', ['classification', 'regression'])
def test_an_examples_loss_does_not_depend_on_its_batch(task):
  """Never a batch mean: each row alone has the loss that it has in company."""
  is_classes = task == 'classification'
  model = _model(task, num_outputs=3 if is_classes else 1)
  outputs = _LOGITS if is_classes else _PREDICTIONS
  labels = _CLASSES if is_classes else _TARGETS
  together = model.example_losses(tf.constant(outputs), tf.constant(labels))
  for i in range(3):
    alone = model.example_losses(
      tf.constant(outputs[i : i + 1]), tf.constant(labels[i : i + 1])
    )
    np.testing.assert_array_equal(alone[0], together[i])


def test_weights_spec_says_shapes_without_making_weights():
  spec = _model('classification', num_outputs=3).weights_spec()
  assert spec == OrderedDict(kernel=tf.TensorSpec([2, 3], tf.float32))


@pytest.mark.parametrize('vectorizes', [True, False])
@pytest.mark.parametrize('in_graph', [True, False])
def test_map_stacked_is_the_function_of_each_row(vectorizes, in_graph):
  model = _model('regression', vectorizes)
  seeds = [tf.constant([0, i]) for i in range(4)]
  one_by_one = [model.initialize(seed) for seed in seeds]
  stacked = tf.nest.map_structure(lambda *rows: tf.stack(rows), *one_by_one)
  x = tf.constant([[1.0, 2], [3, -1], [0.5, 0]])

  def run(stacked):
    return model.map_stacked(lambda weights: model.apply(weights, x), stacked)

  outputs = (tf.function(run) if in_graph else run)(stacked)
  expected = [model.apply(weights, x) for weights in one_by_one]
  np.testing.assert_allclose(outputs, np.stack(expected), rtol=1e-6)


@pytest.mark.parametrize('num_stacked', [1, 2])
def test_map_stacked_has_gradients_that_are_tensors(num_stacked):
  """TensorFlow's would be sparse for one row, and optimizers could not add."""
  model = _model('regression', vectorizes=True)
  one = model.initialize(tf.constant([0, 1]))
  stacked = tf.nest.map_structure(
    lambda leaf: tf.stack([leaf] * num_stacked), one
  )

  @tf.function
  def gradient(stacked):
    with tf.GradientTape() as tape:
      tape.watch(stacked)
      outputs = model.map_stacked(
        lambda weights: model.apply(weights, tf.ones([3, 2])), stacked
      )
    return tape.gradient(outputs, stacked)

  for leaf in tf.nest.flatten(gradient(stacked)):
    assert tf.is_tensor(leaf) and not isinstance(leaf, tf.IndexedSlices)


def _sequence_model():
  """Three places, four classes; 0 is padding and 3 is not scored."""
  return dataclasses.replace(
    _model('classification', vectorizes=True),
    num_outputs=4,
    label_shape=(3,),
    padding_label=0,
    unscored_labels=(0, 3),
  )


def test_losses_and_scores_of_labels_at_several_places():
  model = _sequence_model()
  labels = tf.constant([[1, 3, 0], [2, 1, 1], [0, 0, 0]])
  outputs = np.random.default_rng(0).normal(size=(3, 3, 4)).astype(np.float32)
  outputs[0, 0, 1] = outputs[0, 1, 3] = outputs[1, 0, 2] = 9  # Right ones.
  outputs[1, 1:, 0] = 9  # Wrong ones.
  powers = np.exp(outputs.astype(np.float64))
  shares = powers / powers.sum(axis=-1, keepdims=True)
  each = -np.log(
    np.take_along_axis(shares, labels.numpy()[..., None], axis=-1)[..., 0]
  )
  np.testing.assert_allclose(
    model.example_losses(outputs, labels),
    [each[0, :2].mean(), each[1].mean(), 0],
    rtol=1e-4,
  )
  np.testing.assert_allclose(
    model.example_scores(outputs, labels), [1, 1 / 3, 0], rtol=1e-6
  )
  mask = tf.constant([1.0, 1, 0])
  np.testing.assert_array_equal(model.loss_weights(labels, mask), [2, 3, 0])
  np.testing.assert_array_equal(model.score_weights(labels, mask), [1, 3, 0])


def test_without_padding_and_unscored_labels_every_place_counts():
  model = dataclasses.replace(
    _sequence_model(), padding_label=None, unscored_labels=()
  )
  labels, mask = tf.constant([[0, 3, 1]]), tf.constant([1.0])
  np.testing.assert_array_equal(model.loss_weights(labels, mask), [3])
  np.testing.assert_array_equal(model.score_weights(labels, mask), [3])


def test_an_example_with_one_label_counts_once():
  model = _model('classification', vectorizes=True)
  mask = tf.constant([1.0, 0])
  labels = tf.constant([0, 1])
  assert model.loss_weights(labels, mask) is mask
  assert model.score_weights(labels, mask) is mask
