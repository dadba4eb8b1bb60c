import types

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.serving import served_model


@pytest.fixture(name='doubling', scope='module')
def make_doubling(tmp_path_factory):
  """A SavedModel that this library did not write."""
  folder = tmp_path_factory.mktemp('other')
  doubled = tf.function(
    lambda x: {'doubled': 2 * x},
    input_signature=[tf.TensorSpec([None], tf.float32, name='x')],
  )
  tf.saved_model.save(tf.Module(), str(folder), {'serving_default': doubled})
  return served_model.ServedModel('other', 3, folder)


def test_model_of_somebody_else_is_served(doubling):
  outputs = doubling.predict('serving_default', {'x': np.float32([1, 2])})
  np.testing.assert_array_equal(outputs['doubled'], [2, 4])
  assert not doubling.row_wise


def test_a_cut_off_message_of_a_graph_is_a_sentence(doubling, monkeypatch):
  def fail(**unused_inputs):
    message = 'Graph execution error:\n\nDetected at node'
    raise tf.errors.InvalidArgumentError(None, None, message)

  loaded = types.SimpleNamespace(signatures={'serving_default': fail})
  monkeypatch.setattr(doubling, '_loaded', loaded)
  with pytest.raises(errors.RequestError, match='^the inputs are malformed$'):
    doubling.predict('serving_default', {'x': np.float32([1])})


def test_batch_that_does_not_fit_in_memory_is_too_large(doubling, monkeypatch):
  def fail(**unused_inputs):
    raise tf.errors.ResourceExhaustedError(None, None, 'OOM')

  loaded = types.SimpleNamespace(signatures={'serving_default': fail})
  monkeypatch.setattr(doubling, '_loaded', loaded)
  with pytest.raises(errors.RequestError, match='send fewer rows') as error:
    doubling.predict('serving_default', {'x': np.float32([1])})
  assert error.value.status == 413
