"""The graph pieces of a bundle, against NumPy."""

import hypothesis
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tests.testing import exportable
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
