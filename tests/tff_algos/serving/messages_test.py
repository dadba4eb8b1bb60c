"""PredictRequests made of JSON, by the signatures that a server tells."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tff_algos.core import errors
from tff_algos.serving import clients, messages

ROWS = {'signature_name': 'serving_default', 'instances': [[1, 2, 3, 4]]}


@pytest.fixture(name='server')
def make_server(served):
  return clients.Server(f'grpc://{served.address}')


def made(server, model, version, body):
  return predict_pb2.PredictRequest.FromString(
    messages.predict_request(server, model, version, body)
  )


def test_rows(server):
  request = made(server, 'anna', None, ROWS)
  assert request.model_spec.name == 'anna'
  assert not request.model_spec.HasField('version')
  x = tf.make_ndarray(request.inputs['x'])
  np.testing.assert_array_equal(x, np.float32([[1, 2, 3, 4]]))


def test_raw_columns(server):
  columns = {name: [None] for name in 'abcd'}
  body = {
    'signature_name': 'serving_raw',
    'inputs': {'client_id': ['anna'], **columns},
  }
  request = made(server, 'personalized_models', 1, body)
  assert request.model_spec.version.value == 1
  assert tf.make_ndarray(request.inputs['client_id']).tolist() == [b'anna']
  assert np.isnan(tf.make_ndarray(request.inputs['d']))


@pytest.mark.parametrize(
  ('model', 'change', 'text'),
  [
    ('nobody', {}, "the signatures of 'nobody': NOT_FOUND: unknown model"),
    (
      'anna',
      {'signature_name': 'tell'},
      "no signature 'tell'; it has .*serving_raw",
    ),
    ('anna', {'instances': [[1]]}, r'\[batch, 4\], got \[1, 1\]'),
    ('anna', {'instances': 3}, 'a list that is not empty'),
  ],
)
def test_bodies_that_do_not_fit(server, model, change, text):
  with pytest.raises(errors.UserError, match=text):
    messages.predict_request(server, model, None, {**ROWS, **change})
