"""What serves a membership in the bundle of cluster models, against NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable, toys
from tff_algos.algorithms.ppfl import ppfl
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.export import newcomer_models

_X = exportable.sample_inputs(6)
_MIXTURE = np.float32([[1, 0], [0.3, 0.7], [1, 0], [0.5, 0.5], [0.3, 0.7]])
_MIXTURE = np.concatenate([_MIXTURE, [[0, 1]]]).astype(np.float32)


def _algorithm(task=model_lib.CLASSIFICATION):
  """Mixes parameters, and has logits twice as large as the cluster models."""
  model = exportable.linear_model(task)
  newcomers = algorithm_lib.Newcomers(
    fit=None,
    weights=lambda state, membership: tf.nest.map_structure(
      lambda leaf: 2 * tf.tensordot(membership, leaf, 1), state.cluster_weights
    ),
  )
  built = dataclasses.replace(exportable.algorithm(model), newcomers=newcomers)
  return built, exportable.states(model)[0]


def _oracle(state, rows):
  logits = np.stack(
    [exportable.oracle_logits(state.cluster_weights, k, _X) for k in range(2)]
  )
  return 2 * np.einsum('bk,kbo->bo', rows, logits)


def test_each_row_is_served_by_the_mixture_of_its_membership(tmp_path):
  algorithm, state = _algorithm()
  folder = exportable.export_clusters(tmp_path, algorithm=algorithm)
  loaded = tf.saved_model.load(str(folder))
  outputs = loaded.signatures['predict_mixture'](
    x=tf.constant(_X), mixture=tf.constant(_MIXTURE)
  )
  assert set(outputs) == {'probabilities', 'class_id'}
  expected = _oracle(state, _MIXTURE)
  np.testing.assert_allclose(
    outputs['probabilities'], exportable.softmax(expected), rtol=1e-5
  )
  np.testing.assert_array_equal(outputs['class_id'], expected.argmax(axis=1))
  text = 'row 1 sums to 1.2'
  with pytest.raises(tf.errors.InvalidArgumentError, match=text):
    loaded.signatures['predict_mixture'](
      x=tf.constant(_X[:2]), mixture=tf.constant([[1.0, 0], [0.5, 0.7]])
    )


def test_predictions_of_a_regression():
  algorithm, state = _algorithm(model_lib.REGRESSION)
  stored = newcomer_models.store(algorithm, state, ())
  found = stored.predict(tf.constant(_X), tf.constant(_MIXTURE))
  np.testing.assert_allclose(
    found['prediction'], _oracle(state, _MIXTURE)[:, 0], rtol=1e-5
  )


@pytest.mark.parametrize('mode', ['outputs', 'parameters', 'probabilities'])
def test_ppfl_serves_what_evaluation_measures(mode):
  algorithm = ppfl.build_ppfl(toys.mlp(), ppfl.PpflConfig(mixing=mode))
  state, _ = toys.initial_states(algorithm, toys.image_clients(2).population)
  x = np.random.default_rng(1).normal(size=(6, 4, 4, 1)).astype(np.float32)
  stored = newcomer_models.store(algorithm, state, ())
  found = stored.predict(tf.constant(x), tf.constant(_MIXTURE))
  model = algorithm.personalized_model
  for row, shares in enumerate(_MIXTURE):
    weights = algorithm.personalized_weights(
      state, ppfl.ClientState(tf.constant(shares)), 0
    )
    logits = model.apply(weights, x[row : row + 1]).numpy()
    expected = exportable.softmax(logits)
    np.testing.assert_allclose(
      found['probabilities'][row], expected[0], rtol=1e-4
    )


def test_what_is_stored_already_or_not_used_is_not_stored():
  """A kernel of the bundle, a bias of its own, and no memberships."""
  algorithm, state = _algorithm()
  kernel = state.cluster_weights['kernel']
  held = tf.Variable(kernel)
  stored = newcomer_models.store(algorithm, state, [(kernel, held)])
  assert [variable.shape for variable in stored.variables] == [(2, 3)]
  plain = dataclasses.replace(algorithm, newcomers=None)
  assert newcomer_models.store(plain, state, ()) == ((), None)
  assert newcomer_models.samples(plain, state, _X) == ()


def test_arrays_that_are_not_finite_are_refused():
  algorithm, state = _algorithm()
  state.cluster_weights['bias'][0, 1] = np.nan
  with pytest.raises(errors.ExportError, match='must be finite, but 1 of'):
    newcomer_models.store(algorithm, state, ())
