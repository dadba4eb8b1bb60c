"""The bundle of all cluster models, against NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import precision

X = exportable.sample_inputs(6)


def load(tmp_path, model, **changes):
  """Exports a model's clusters and returns the loaded signatures."""
  folder = exportable.export_clusters(
    tmp_path / 'cluster_models', model, sample_inputs=X, **changes
  )
  loaded = tf.saved_model.load(str(folder))

  def call(name, **inputs):
    inputs = {key: tf.constant(value) for key, value in inputs.items()}
    outputs = loaded.signatures[name](**inputs)
    return {key: value.numpy() for key, value in outputs.items()}

  return call


@pytest.fixture(scope='module', params=[True, False], ids=['vector', 'loop'])
def classifier(request, tmp_path_factory):
  model = exportable.linear_model(vectorizes=request.param)
  return load(tmp_path_factory.mktemp('classifier'), model)


@pytest.fixture(scope='module')
def regressor(tmp_path_factory):
  model = exportable.linear_model(model_lib.REGRESSION)
  return load(tmp_path_factory.mktemp('regressor'), model)


def oracle(task=model_lib.CLASSIFICATION):
  """Returns NumPy's outputs, `[num_clusters, batch, num_outputs]`."""
  state, _ = exportable.states(exportable.linear_model(task))
  return np.stack(
    [
      exportable.oracle_logits(state.cluster_weights, k, X)
      for k in range(exportable.NUM_CLUSTERS)
    ]
  )


def test_a_bfloat16_model_is_served_in_float32_with_its_own_numbers(tmp_path):
  """Its logits, near 500, have neighbours at a distance of 2."""
  model = precision.compute_in(exportable.linear_model(), 'bfloat16')
  state, _ = exportable.states(model)
  weights = {k: 200 * leaf for k, leaf in state.cluster_weights.items()}
  state = state._replace(cluster_weights=weights)
  call = load(tmp_path, model, server_state=state)
  outputs = call('predict_cluster', x=X, cluster_id=np.int32([1] * 6))
  assert outputs['logits'].dtype == outputs['probabilities'].dtype == np.float32
  own = tf.nest.map_structure(lambda leaf: tf.constant(leaf[1]), weights)
  expected = tf.function(model.apply)(own, tf.constant(X))
  np.testing.assert_array_equal(outputs['logits'], expected)
  exact = exportable.oracle_logits(weights, 1, X)
  assert 0.1 < np.abs(outputs['logits'] - exact).max() < 9


@pytest.mark.parametrize('name', ['serving_default', 'predict_cluster'])
@pytest.mark.parametrize('ids', [[0] * 6, [1] * 6, [1, 0, 0, 1, 0, 1]])
def test_rows_are_predicted_by_their_cluster(classifier, name, ids):
  outputs = classifier(name, x=X, cluster_id=np.int32(ids))
  logits = oracle()[ids, np.arange(6)]
  np.testing.assert_allclose(outputs['logits'], logits, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
    outputs['probabilities'], exportable.softmax(logits), rtol=1e-5, atol=1e-6
  )
  np.testing.assert_array_equal(outputs['class_id'], logits.argmax(axis=1))
  assert outputs['class_id'].dtype == np.int32


def test_mixture_is_of_probabilities(classifier):
  mixture = np.float32(
    [[1, 0], [0, 1], [0.5, 0.5], [0.3, 0.7]] + [[0.2, 0.8]] * 2
  )
  outputs = classifier('predict_mixture', x=X, mixture=mixture)
  expected = np.einsum('bk,kbc->bc', mixture, exportable.softmax(oracle()))
  assert set(outputs) == {'probabilities', 'class_id'}
  np.testing.assert_allclose(outputs['probabilities'], expected, rtol=1e-5)
  np.testing.assert_array_equal(outputs['class_id'], expected.argmax(axis=1))


def test_regression_has_one_prediction_for_each_row(regressor):
  values = oracle(model_lib.REGRESSION)[:, :, 0]
  ids = np.int32([0, 1, 1, 0, 1, 0])
  outputs = regressor('predict_cluster', x=X, cluster_id=ids)
  assert set(outputs) == {'prediction'}
  np.testing.assert_allclose(
    outputs['prediction'], values[ids, np.arange(6)], rtol=1e-5, atol=1e-6
  )
  mixture = np.tile(np.float32([0.25, 0.75]), [6, 1])
  outputs = regressor('predict_mixture', x=X, mixture=mixture)
  np.testing.assert_allclose(
    outputs['prediction'],
    0.25 * values[0] + 0.75 * values[1],
    rtol=1e-5,
    atol=1e-6,
  )


def test_cluster_is_picked_by_mean_loss(classifier):
  label = np.int32([0, 1, 2, 0, 1, 2])
  outputs = classifier('pick_cluster', x=X, label=label)
  probabilities = exportable.softmax(oracle())[:, np.arange(6), label]
  expected = -np.log(probabilities).mean(axis=1)
  np.testing.assert_allclose(outputs['mean_loss'], [expected], rtol=1e-5)
  np.testing.assert_array_equal(outputs['cluster_id'], [expected.argmin()])


def test_cluster_is_picked_by_squared_error(regressor):
  values = oracle(model_lib.REGRESSION)[:, :, 0]
  outputs = regressor('pick_cluster', x=X, label=values[1] + np.float32(0.5))
  assert outputs['cluster_id'] == [1]
  np.testing.assert_allclose(outputs['mean_loss'][0, 1], 0.25, rtol=1e-4)


@pytest.mark.parametrize('label', [np.nan, np.inf])
def test_a_label_of_a_regression_is_finite(regressor, label):
  with pytest.raises(
    tf.errors.InvalidArgumentError,
    match='label must be finite, got .* in row 1',
  ):
    regressor('pick_cluster', x=X, label=np.float32([0, label, 0, 0, 0, 0]))


def test_nan_loss_counts_as_infinite(classifier):
  x = X.copy()
  x[0] = np.nan
  outputs = classifier('pick_cluster', x=x, label=np.int32([0] * 6))
  np.testing.assert_array_equal(outputs['mean_loss'], [[np.inf, np.inf]])
  assert outputs['cluster_id'] == [0]


@pytest.mark.parametrize(
  ('name', 'inputs', 'text'),
  [
    (
      'predict_cluster',
      {'cluster_id': np.int32([0, 0, 2, 0, 0, 0])},
      'cluster_id must be from 0 to 1, got 2 in row 2',
    ),
    (
      'predict_cluster',
      {'cluster_id': np.int32([-1] * 6)},
      'cluster_id must be from 0 to 1, got -1 in row 0',
    ),
    (
      'predict_cluster',
      {'cluster_id': np.int32([0])},
      'cluster_id must have one row for each example: it has 1, and the number of examples is 6',
    ),
    (
      'predict_mixture',
      {'mixture': np.float32([[0.5, 0.5]] * 5 + [[0.5, 0.75]])},
      r'row 5 sums to 1.25 with smallest entry 0.5',
    ),
    (
      'predict_mixture',
      {'mixture': np.float32([[1.5, -0.5]] * 6)},
      r'row 0 sums to 1 with smallest entry -0.5',
    ),
    (
      'predict_mixture',
      {'mixture': np.float32([[0.5, 0.5]] * 5 + [[np.nan, 1]])},
      r'row 5 sums to nan',
    ),
    (
      'pick_cluster',
      {'label': np.int32([0, 1, 2, 3, 0, 0])},
      'label must be from 0 to 2, got 3 in row 3',
    ),
    (
      'pick_cluster',
      {'x': X[:0], 'label': np.int32([])},
      'pick_cluster needs at least one example',
    ),
  ],
)
def test_bad_values_are_refused(classifier, name, inputs, text):
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    classifier(name, **{'x': X, **inputs})


def test_mixture_may_miss_one_by_the_tolerance(classifier):
  mixture = np.tile(np.float32([0.5, 0.5009]), [6, 1])
  outputs = classifier('predict_mixture', x=X, mixture=mixture)
  np.testing.assert_allclose(
    outputs['probabilities'].sum(axis=1), np.ones(6), rtol=1e-6
  )
  with pytest.raises(tf.errors.InvalidArgumentError):
    classifier('predict_mixture', x=X, mixture=mixture + np.float32(0.001))


def test_no_rows_give_no_predictions(classifier):
  outputs = classifier('predict_cluster', x=X[:0], cluster_id=np.int32([]))
  assert outputs['logits'].shape == (0, exportable.NUM_CLASSES)


@pytest.mark.parametrize(
  ('x', 'text'),
  [
    (X[:, :3], r'sample inputs must have shape \[n, \*\[4\]\].* got \[6, 3\]'),
    (X[:0], r'n >= 1, got \[0, 4\]'),
    (X * np.nan, 'sample inputs must be finite, but 24 of 24'),
  ],
)
def test_bad_sample_inputs_are_refused(tmp_path, x, text):
  with pytest.raises(errors.ExportError, match=text):
    exportable.export_clusters(tmp_path, sample_inputs=x)
  assert not list(tmp_path.iterdir())


def test_nan_weights_are_not_exported(tmp_path):
  model = exportable.linear_model()
  state, _ = exportable.states(model)
  state.cluster_weights['bias'][1, 0] = np.nan
  with pytest.raises(errors.ExportError, match="'bias' must be finite, but 1"):
    load(tmp_path, model, server_state=state)


def test_weights_whose_outputs_overflow_are_not_exported(tmp_path):
  """Finite weights; infinity equals infinity in what is read back."""
  model = exportable.linear_model()
  state, _ = exportable.states(model)
  state.cluster_weights['kernel'][1] = 3e38
  with pytest.raises(errors.ExportError, match='model in memory is NaN or inf'):
    load(tmp_path, model, server_state=state)
  assert not list((tmp_path / 'cluster_models').iterdir())


def test_too_few_clusters_are_not_exported(tmp_path):
  model = exportable.linear_model()
  algorithm = dataclasses.replace(exportable.algorithm(model), num_clusters=3)
  with pytest.raises(errors.ExportError, match='must have 3 rows, got shape'):
    exportable.export_clusters(tmp_path, algorithm=algorithm)
