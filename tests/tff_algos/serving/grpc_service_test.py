"""The gRPC services over a real channel."""

import collections
import contextlib
import gc
import socket
import threading
import time
import types

import grpc
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
  classification_pb2,
  get_model_metadata_pb2,
  get_model_status_pb2,
  model_service_pb2_grpc,
  predict_pb2,
  prediction_service_pb2_grpc,
  regression_pb2,
)

from tests.testing import exportable, patience
from tests.testing import ports as ports_lib
from tff_algos.core import errors
from tff_algos.serving import (
  grpc_service,
  lanes,
  served_model,
  server,
  server_config,
)

X = exportable.sample_inputs(3)


@pytest.fixture(name='stub', scope='module')
def make_stub(served):
  return prediction_service_pb2_grpc.PredictionServiceStub(served.channel)


def request(model='anna', signature='', **inputs):
  message = predict_pb2.PredictRequest()
  message.model_spec.name = model
  message.model_spec.signature_name = signature
  for name, value in inputs.items():
    message.inputs[name].CopyFrom(tf.make_tensor_proto(value))
  return message


def check_refused(call, message, code, text):
  with pytest.raises(grpc.RpcError) as error:
    call(message, timeout=30)
  assert error.value.code() == code
  assert text in error.value.details()


def test_predict(stub):
  reply = stub.Predict(
    request('personalized_models', client_id=['anna', 'd d', 'çelik'], x=X),
    timeout=30,
  )
  _, states = exportable.states(exportable.linear_model())
  expected = [
    exportable.oracle_logits(states.personalized_weights, i, x)
    for i, x in zip((0, 3, 2), X, strict=True)
  ]
  logits = tf.make_ndarray(reply.outputs['logits'])
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
  assert reply.model_spec.name == 'personalized_models'
  assert reply.model_spec.version.value == 1
  assert reply.model_spec.signature_name == 'serving_default'
  assert set(reply.outputs) == {'logits', 'probabilities', 'class_id'}


def test_a_queue_of_one(small_store):
  """The one that is received does not give way to itself."""
  config = server_config.ServerConfig(rest_api_port=0, port=0, max_waiting=1)
  with (
    server.running(small_store, config) as ports,
    grpc.insecure_channel(f'127.0.0.1:{ports.port}') as channel,
  ):
    asked = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    reply = asked.Predict(request(x=[[1.0, 2.0, 3.0, 4.0]]), timeout=30)
  assert reply.model_spec.name == 'anna'


def test_raw_rows(stub):
  ids = ['anna', 'd d', 'çelik']
  columns = dict(zip('abcd', X.T.copy(), strict=True))
  reply = stub.Predict(
    request('personalized_models', 'serving_raw', client_id=ids, **columns),
    timeout=30,
  )
  encoded = stub.Predict(
    request('personalized_models', client_id=ids, x=X), timeout=30
  )
  assert reply.outputs['logits'] == encoded.outputs['logits']
  classes = tf.make_ndarray(reply.outputs['class_id'])
  assert tf.make_ndarray(reply.outputs['class_name']).tolist() == [
    f'c{i}'.encode() for i in classes
  ]
  columns['d'][2] = np.nan
  check_refused(
    stub.Predict,
    request('personalized_models', 'serving_raw', client_id=ids, **columns),
    grpc.StatusCode.INVALID_ARGUMENT,
    'column d must be finite, got nan in row 2',
  )


def test_classify(stub):
  message = classification_pb2.ClassificationRequest()
  message.model_spec.name = 'anna'
  listed = message.input.example_list_with_context
  for name, value in zip('abcd', X[0].tolist(), strict=True):
    example = listed.context if name < 'c' else listed.examples.add()
    if name == 'd':  # Another example, which replaces the number of c.
      listed.examples[0].features.feature['d'].float_list.value.append(value)
      example.features.feature['d'].float_list.value.append(0.5)
      example.features.feature['c'].float_list.value.append(0.25)
    else:
      example.features.feature[name].float_list.value.append(value)
  reply = stub.Classify(message, timeout=30)
  x = np.stack([X[0], [*X[0, :2], 0.25, 0.5]]).astype(np.float32)
  predicted = stub.Predict(request(x=x), timeout=30)
  scores = tf.make_ndarray(predicted.outputs['probabilities'])
  for row, expected in zip(
    reply.result.classifications, scores.tolist(), strict=True
  ):
    assert [(one.label, one.score) for one in row.classes] == [
      (f'c{i}', score) for i, score in enumerate(expected)
    ]
  assert reply.model_spec.signature_name == 'classify'
  check_refused(
    stub.Regress,
    regression_pb2.RegressionRequest(model_spec=message.model_spec),
    grpc.StatusCode.INVALID_ARGUMENT,
    'at least one example',
  )


def test_signature_version_and_output_filter(stub):
  message = request(
    'cluster_models', 'pick_cluster', x=X, label=np.int32([0, 1, 2])
  )
  message.model_spec.version.value = 1
  message.output_filter.append('cluster_id')
  reply = stub.Predict(message, timeout=30)
  assert set(reply.outputs) == {'cluster_id'}
  message.output_filter.append('nothing')
  check_refused(
    stub.Predict,
    message,
    grpc.StatusCode.INVALID_ARGUMENT,
    "output_filter names 'nothing'",
  )


def test_metadata(stub):
  message = get_model_metadata_pb2.GetModelMetadataRequest()
  message.model_spec.name = 'cluster_models'
  message.metadata_field.append('signature_def')
  reply = stub.GetModelMetadata(message, timeout=30)
  signatures = get_model_metadata_pb2.SignatureDefMap()
  assert reply.metadata['signature_def'].Unpack(signatures)
  assert {
    'serving_default',
    'predict_cluster',
    'predict_mixture',
    'pick_cluster',
  } <= set(signatures.signature_def)
  message.metadata_field.append('more')
  check_refused(
    stub.GetModelMetadata,
    message,
    grpc.StatusCode.INVALID_ARGUMENT,
    "metadata_field must be ['signature_def']",
  )


def test_status(served):
  stub = model_service_pb2_grpc.ModelServiceStub(served.channel)
  message = get_model_status_pb2.GetModelStatusRequest()
  message.model_spec.name = 'anna'
  (status,) = stub.GetModelStatus(message, timeout=30).model_version_status
  assert (status.version, status.state) == (1, status.AVAILABLE)
  message.model_spec.name = '../export/anna'
  check_refused(
    stub.GetModelStatus, message, grpc.StatusCode.NOT_FOUND, 'unknown model'
  )


def bad_version():
  message = request(x=X)
  message.model_spec.version.value = 5
  return message


def label():
  message = request(x=X)
  message.model_spec.version_label = 'stable'
  return message


def bomb(num_rows):
  message = request()
  message.inputs['x'].CopyFrom(tf.make_tensor_proto(1.0))
  for size in (num_rows, 4):
    message.inputs['x'].tensor_shape.dim.add(size=size)
  return message


def repeated(name, value, *sizes):
  """One value that stands for all."""
  message = request('personalized_models', client_id=[b'anna'] * 3, x=X)
  message.inputs[name].CopyFrom(tf.make_tensor_proto(value))
  for size in sizes:
    message.inputs[name].tensor_shape.dim.add(size=size)
  return message


def repeated_text():
  """One text that stands for as many as another field has zeros."""
  message = repeated('client_id', b'a' * 1000, 90)
  message.inputs['client_id'].int_val.extend([0] * 90)
  return message


def text_as_content():
  message = repeated('client_id', b'a', 3)
  message.inputs['client_id'].tensor_content = b'\1\1\1aaa'
  return message


def wrong_field():
  """Numbers of the message that are not those of the tensor."""
  message = repeated('x', 1.0, 90, 200)
  message.inputs['x'].int_val.extend([0] * 18_000)
  return message


def short_content():
  message = request(x=X)
  message.inputs['x'].tensor_content = b'\0' * 5
  return message


def test_many_small_numbers_hold_all_values():
  """They take a byte each in a message, and four in memory."""
  proto = tensor_pb2.TensorProto(dtype=tf.int32.as_datatype_enum)
  proto.tensor_shape.dim.add(size=20_000)
  proto.int_val.extend([1] * 20_000)
  info = types.SimpleNamespace(dtype=tf.int32.as_datatype_enum)
  config = server_config.ServerConfig()
  found = grpc_service._array('cluster_id', proto, info, config)
  assert found.tolist() == [1] * 20_000
  del proto.int_val[1:]
  with pytest.raises(errors.RequestError, match='must hold all values'):
    grpc_service._array('cluster_id', proto, info, config)


@pytest.mark.parametrize(
  ('message', 'code', 'text'),
  [
    (request('nobody', x=X), 'NOT_FOUND', "unknown model 'nobody'"),
    (bad_version(), 'NOT_FOUND', "model 'anna' has no version 5"),
    (label(), 'NOT_FOUND', "model 'anna' has no label 'stable'"),
    (request('anna', 'tell', x=X), 'NOT_FOUND', "no signature 'tell'"),
    (request(), 'INVALID_ARGUMENT', 'must name the inputs x, got none'),
    (request(x=X, z=X), 'INVALID_ARGUMENT', 'inputs x, got x, z'),
    (request(x=X[:, :3]), 'INVALID_ARGUMENT', '[batch, 4], got [3, 3]'),
    (request(x=X.astype(float)), 'INVALID_ARGUMENT', 'must have dtype float32'),
    (request(x=X * np.nan), 'INVALID_ARGUMENT', 'must be finite'),
    (short_content(), 'INVALID_ARGUMENT', 'not a valid TensorProto'),
    (bomb(-1), 'INVALID_ARGUMENT', 'must have a known shape'),
    (bomb(101), 'RESOURCE_EXHAUSTED', '101 rows, and at most 100'),
    (bomb(10**12), 'RESOURCE_EXHAUSTED', 'larger than 100000 bytes'),
    (repeated('x', 1.0, 100, 200), 'INVALID_ARGUMENT', "'x' must hold all"),
    (repeated('client_id', b'a', 3), 'INVALID_ARGUMENT', "_id' must hold all"),
    (repeated_text(), 'INVALID_ARGUMENT', "_id' must hold all"),
    (text_as_content(), 'INVALID_ARGUMENT', 'of its shape in string_val'),
    (wrong_field(), 'INVALID_ARGUMENT', 'in float_val or tensor_content'),
    (request(x=np.zeros([9000, 4], 'f')), 'RESOURCE_EXHAUSTED', ''),
    (
      request('personalized_models', client_id=[b'\xff'] * 3, x=X),
      'NOT_FOUND',
      'unknown client id \ufffd;',
    ),
    (
      request('cluster_models', cluster_id=np.int32([0, 1, 2]), x=X),
      'INVALID_ARGUMENT',
      'cluster_id must be from 0 to 1, got 2 in row 2',
    ),
  ],
)
def test_bad_requests_are_refused(stub, message, code, text):
  check_refused(stub.Predict, message, grpc.StatusCode[code], text)


def test_a_client_state_that_cannot_be_read_is_an_error_of_the_server(
  stub, monkeypatch
):
  def fail(*_):
    raise errors.RequestError('the state of a client cannot be read', 500)

  monkeypatch.setattr(served_model.ServedModel, 'run', fail)
  text = 'the state of a client cannot be read'
  check_refused(stub.Predict, request(x=X), grpc.StatusCode.INTERNAL, text)


PREDICT = '/tensorflow.serving.PredictionService/Predict'


def junk(rng):
  """Bytes, or a good message with a few of its bytes changed."""
  if rng.random() < 0.3:
    return rng.bytes(rng.integers(100))
  content = bytearray(request(x=X).SerializeToString())
  for _ in range(rng.integers(1, 4)):
    content[rng.integers(len(content))] = rng.integers(256)
  return bytes(content)


def test_malformed_messages_are_mistakes_of_the_client(served, capfd):
  rng = np.random.default_rng(0)
  call = served.channel.unary_unary(PREDICT)
  codes = collections.Counter()
  for _ in range(300):
    try:
      call(junk(rng), timeout=30)
      codes['OK'] += 1
    except grpc.RpcError as error:
      codes[error.code().name] += 1
  assert set(codes) <= {
    'OK',
    'INVALID_ARGUMENT',
    'NOT_FOUND',
    'RESOURCE_EXHAUSTED',
  }
  assert codes['INVALID_ARGUMENT'] > 100
  assert 'Traceback' not in capfd.readouterr().err


def test_malformed_messages_wait_for_nobody(served, monkeypatch):
  def submit(self, *arguments, **options):
    raise AssertionError(arguments)

  monkeypatch.setattr(lanes.Lanes, 'submit', submit)
  call = served.channel.unary_unary(
    '/tensorflow.serving.PredictionService/Classify'
  )
  text = 'the message is no tensorflow.serving.ClassificationRequest'
  check_refused(call, b'\xff', grpc.StatusCode.INVALID_ARGUMENT, text)


def test_bugs_are_not_told_to_clients(served, monkeypatch, caplog):
  def submit(self, *arguments, **options):
    raise AssertionError('our secret')

  monkeypatch.setattr(lanes.Lanes, 'submit', submit)
  call = served.channel.unary_unary(PREDICT)
  with pytest.raises(grpc.RpcError) as error:
    call(b'', timeout=30)
  assert error.value.code() == grpc.StatusCode.INTERNAL
  assert error.value.details() == 'internal error'
  (trace,) = [one for one in caplog.records if one.exc_info]
  assert 'our secret' in str(trace.exc_info[1])


@pytest.mark.parametrize(
  ('peer', 'address'),
  [
    ('ipv4:127.0.0.1:50123', '127.0.0.1'),
    ('ipv6:%5B::1%5D:50123', '::1'),
    ('ipv6:[::1]:50123', '::1'),
  ],
)
def test_addresses_are_those_of_http(peer, address):
  assert grpc_service._address(peer) == address


def test_idle_connections_make_room(small_store, monkeypatch):
  monkeypatch.setattr(server, '_IDLE_SECONDS', 1)
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with server.running(small_store, config) as ports:
    address = ('127.0.0.1', ports.port)
    with socket.create_connection(address, timeout=20) as connection:
      connection.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes(3))
      connection.sendall(b'\x04' + bytes(5))
      ports_lib.read_all(connection)


def test_requests_beyond_those_at_a_time_wait_at_the_client(served):
  call = served.channel.unary_unary(PREDICT)
  good = request(x=X).SerializeToString()
  replies = [call.future(good, timeout=60) for _ in range(200)]
  codes = collections.Counter(reply.code().name for reply in replies)
  assert codes == {'OK': 200}


def test_refused_requests_need_no_garbage_collection(served):
  call = served.channel.unary_unary(PREDICT)
  gc.collect()
  gc.disable()
  try:
    for _ in range(20):
      with pytest.raises(grpc.RpcError):
        call(b'\xff', timeout=30)
    kept = [one for one in gc.get_objects() if type(one) is errors.RequestError]
  finally:
    gc.enable()
  assert len(kept) < 5


def test_other_methods_are_unimplemented(served):
  for path in ('/tensorflow.serving.PredictionService/Explain', '/a/b'):
    call = served.channel.unary_unary(path)
    check_refused(call, b'', grpc.StatusCode.UNIMPLEMENTED, '')


@pytest.mark.parametrize('number', [0, 2])
def test_a_request_is_one_message(served, number):
  call = served.channel.stream_unary(PREDICT)
  messages, text = iter([b''] * number), 'must be a single message'
  check_refused(call, messages, grpc.StatusCode.INVALID_ARGUMENT, text)


def test_a_client_that_sends_no_message_is_cut_off(served):
  never = threading.Event()
  call = served.channel.stream_unary(PREDICT)
  start = time.monotonic()
  with pytest.raises(grpc.RpcError) as error:
    call(iter(lambda: never.wait(20) or b'', b''), timeout=30)
  never.set()
  assert error.value.code() == grpc.StatusCode.CANCELLED
  assert 0.9 < time.monotonic() - start < 15


def test_a_request_that_was_cancelled_before_its_turn_costs_nothing():
  """Nothing else of its context is asked for."""
  services = grpc_service.Services(
    types.SimpleNamespace(config=server_config.ServerConfig())
  )
  context = types.SimpleNamespace(is_active=lambda: False)
  assert services._respond('Predict', iter(()), context) == b''
  services.close()


def num_calls():
  gc.collect()  # Calls that have failed may be in cycles.
  return sum(type(one).__name__ == '_Context' for one in gc.get_objects())


def test_a_connection_of_silent_requests_makes_room_for_others(small_store):
  """Of 64 requests at a time, half may wait for their message."""
  go, ends = threading.Event(), threading.Event()

  def send(when):
    when.wait(30)
    yield request(x=X).SerializeToString()

  num_before = num_calls()
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with (
    server.running(small_store, config) as ports,
    contextlib.ExitStack() as stack,
  ):
    calls = [
      stack.enter_context(
        # Channels of one process would share a connection.
        grpc.insecure_channel(
          f'127.0.0.1:{ports.port}', [('grpc.use_local_subchannel_pool', 1)]
        )
      ).stream_unary(PREDICT)
      for _ in range(4)
    ]
    stack.callback(ends.set)
    honest = calls[0].future(send(go), timeout=60)
    time.sleep(0.5)  # It is the oldest that waits.
    silent = [
      call.future(send(ends), timeout=60)
      for call in calls[1:]
      for _ in range(12)
    ]
    patience.until(lambda: any(one.done() for one in silent))
    go.set()
    assert honest.code() == grpc.StatusCode.OK
    # Those that have ended are kept by none that waits.
    patience.until(lambda: num_calls() <= num_before + 32)


@hypothesis.given(
  dtype=st.integers(0, 30),
  sizes=st.lists(st.integers(-2, 5) | st.just(2**62), max_size=3),
  content=st.binary(max_size=20),
  values=st.lists(st.floats(width=32), max_size=4),
)
@hypothesis.settings(max_examples=200)
def test_any_tensor_is_answered(stub, dtype, sizes, content, values):
  message = request()
  tensor = tensor_pb2.TensorProto(
    dtype=dtype, tensor_content=content, float_val=values
  )
  for size in sizes:
    tensor.tensor_shape.dim.add(size=size)
  message.inputs['x'].CopyFrom(tensor)
  try:
    stub.Predict(message, timeout=30)
  except grpc.RpcError as error:
    assert error.code() in (
      grpc.StatusCode.INVALID_ARGUMENT,
      grpc.StatusCode.RESOURCE_EXHAUSTED,
    )


def test_metrics_and_request_ids(served, stub):
  def count():
    lines = served.http.get('/metrics').text.splitlines()
    wanted = 'api="grpc",method="Predict",model="anna",status="OK",version="1"'
    found = [line.split()[-1] for line in lines if f'{{{wanted}}}' in line]
    return float(found[0])

  stub.Predict(request(x=X), timeout=30)
  before = count()
  _, call = stub.Predict.with_call(
    request(x=X), timeout=30, metadata=[('x-request-id', 'mine')]
  )
  assert dict(call.trailing_metadata())['x-request-id'] == 'mine'
  # The client may have its answer before the request is counted.
  patience.until(lambda: count() == before + 1)
