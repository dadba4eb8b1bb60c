"""The graph pieces of a bundle, against NumPy."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests.testing import exportable
from tff_algos.core import model as model_lib
from tff_algos.export import prediction

MODEL = exportable.linear_model()
WEIGHTS = exportable.random_weights(MODEL, 5, seed=0)


@tf.function(
  input_signature=[
    tf.TensorSpec([None], tf.int32),
    prediction.features_spec(MODEL),
  ]
)
def by_group(group_ids, x):
  return prediction.apply_by_group(
    MODEL,
    lambda i: tf.nest.map_structure(lambda leaf: tf.gather(leaf, i), WEIGHTS),
    group_ids,
    x,
  )


@hypothesis.given(st.lists(st.integers(0, 4), max_size=12))
def test_every_row_has_the_weights_of_its_group(ids):
  x = exportable.sample_inputs(len(ids))
  expected = [
    exportable.oracle_logits(WEIGHTS, i, row)
    for i, row in zip(ids, x, strict=True)
  ]
  outputs = by_group(np.array(ids, np.int32), x).numpy()
  np.testing.assert_allclose(
    outputs, np.reshape(expected, [-1, 3]), rtol=1e-5, atol=1e-6
  )


def test_one_set_of_weights_is_gathered_at_a_time():
  graph = by_group.get_concrete_function().graph.as_graph_def()
  loops = [node for node in graph.node if 'While' in node.op]
  assert [node.attr['parallel_iterations'].i for node in loops] == [1]


def test_outputs_of_a_classifier():
  logits = np.float32([[0, 1, -1], [2, 2, 0]])
  outputs = prediction.name_outputs(MODEL, tf.constant(logits))
  assert list(outputs) == ['logits', 'probabilities', 'class_id']
  np.testing.assert_allclose(
    outputs['probabilities'], exportable.softmax(logits), rtol=1e-6
  )
  np.testing.assert_array_equal(outputs['class_id'], [1, 0])


def test_outputs_of_a_regression():
  model = exportable.linear_model(model_lib.REGRESSION)
  outputs = prediction.name_outputs(model, tf.constant([[0.5], [2.0]]))
  np.testing.assert_array_equal(outputs['prediction'], [0.5, 2.0])


def test_first_bad_row_is_named():
  @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
  def checked(values):
    with tf.control_dependencies([prediction.require_index('v', values, 3)]):
      return tf.identity(values)

  np.testing.assert_array_equal(checked([0, 2, 1]), [0, 2, 1])
  assert checked(np.zeros([0], np.int32)).shape == [0]
  with pytest.raises(
    tf.errors.InvalidArgumentError,
    match='v must be from 0 to 2, got 3 in row 1',
  ):
    checked([0, 3, -1])
