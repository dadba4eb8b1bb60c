"""Tokens: who may ask, for whose models, and what the log says."""

import base64
import hashlib
import json
import shutil

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
  classification_pb2,
  predict_pb2,
  prediction_service_pb2_grpc,
)

from tests.testing import servers
from tff_algos.core import errors
from tff_algos.serving import access, models, server_config


def entry(token, **others):
  return {'sha256': hashlib.sha256(token.encode()).hexdigest(), **others}


ENTRIES = {
  'operator': entry('secret'),
  "anna's phone": entry('hers', client_id='anna'),
}
X = [1, 2, 3, 4]
RAW = dict(zip('abcd', [1.0, 2.0, 3.0, 4.0], strict=True))


@pytest.fixture(name='path')
def make_path(tmp_path):
  path = tmp_path / 'tokens.json'
  path.write_text(json.dumps(ENTRIES))
  return path


def test_callers(path):
  tokens = access.Tokens(path)
  assert tokens.caller('Bearer secret') == access.Caller('operator', None)
  assert tokens.caller('bearer  hers ', 'here') == access.Caller(
    "anna's phone", 'anna', 'here'
  )
  for given in (None, '', 'secret', 'Basic secret', 'Bearer', 'Bearer secre'):
    with pytest.raises(errors.RequestError, match='a valid token') as error:
      tokens.caller(given)
    assert error.value.status == 401


def test_what_tells_callers_apart():
  caller = access.Caller('operator', 'anna', '10.0.0.1')
  assert caller.key == 'anna'
  assert caller._replace(client_id=None).key == 'operator'
  assert access.Caller(origin='10.0.0.1').key == '10.0.0.1'


def test_without_a_file_all_may_ask():
  caller = access.Tokens(None).caller(None, '10.0.0.1')
  assert caller == access.Caller(origin='10.0.0.1')


def test_the_file_is_read_again(path):
  tokens = access.Tokens(path)
  path.write_text(json.dumps({'new': entry('other')}))
  assert tokens.caller('Bearer other').name == 'new'
  with pytest.raises(errors.RequestError):
    tokens.caller('Bearer secret')
  path.write_text('{')
  assert tokens.caller('Bearer other').name == 'new'
  path.unlink()
  assert tokens.caller('Bearer other').name == 'new'


@pytest.mark.parametrize(
  ('content', 'text'),
  [
    ('{', 'Expecting'),
    ('[]', 'must be a JSON object'),
    ('{"a": "b"}', 'must be a JSON object'),
    ('{"a": {}}', 'sha256'),
    ('{"a": {"sha256": "00"}}', "of 'a' must have 64 hex digits"),
    ('{"a": {"sha256": "x"}}', 'hexadecimal'),
    ('{"a": {"sha256": "%s"}}' % ('00 ' * 32), 'must have 64 hex digits'),
    ('{"a": {"sha256": "%s", "client": "b"}}' % ('0' * 64), 'unknown entries'),
    ('{"a": {"sha256": "%s", "client_id": 3}}' % ('0' * 64), 'a string'),
    (
      json.dumps({'a': {'sha256': hashlib.sha256(b'').hexdigest()}}),
      "sha256 of 'a' is that of an empty token",
    ),
    (
      json.dumps({'a': {'sha256': '0a' * 32}, 'b': {'sha256': '0A' * 32}}),
      'two names have one sha256',
    ),
  ],
)
def test_damaged_files_are_refused(path, content, text):
  path.write_text(content)
  with pytest.raises(errors.UserError, match=text):
    access.Tokens(path)


def test_missing_file(tmp_path):
  with pytest.raises(errors.UserError, match='No such file'):
    access.Tokens(tmp_path / 'none')


@pytest.fixture(name='served', scope='module')
def make_served(full_store, tmp_path_factory):
  path = tmp_path_factory.mktemp('tokens') / 'tokens.json'
  path.write_text(json.dumps(ENTRIES))
  config = server_config.ServerConfig(
    rest_api_port=0, port=0, token_file=str(path), access_log=True
  )
  with servers.running(full_store, config) as opened:
    yield opened


def ask(served, path, token, content=None):
  headers = {'Authorization': f'Bearer {token}'} if token else {}
  method = 'POST' if content else 'GET'
  return served.http.request(method, path, headers=headers, json=content)


def test_health_needs_no_token_and_all_else_does(served):
  assert ask(served, '/healthz', None).status_code == 200
  assert ask(served, '/readyz', None).status_code in (200, 503)
  for path in ('/metrics', '/v1/models', '/v1/models/anna'):
    reply = ask(served, path, None)
    assert reply.status_code == 401
    assert reply.headers['www-authenticate'] == 'Bearer'
    assert ask(served, path, 'secret').status_code == 200


@pytest.mark.parametrize(
  ('path', 'content', 'status'),
  [
    ('anna:predict', {'instances': [X]}, 200),
    ('cluster_models:predict', {'inputs': {'x': [X], 'cluster_id': [1]}}, 200),
    (
      'personalized_models:predict',
      {'instances': [{'x': X, 'client_id': 'anna'}]},
      200,
    ),
    (
      'personalized_models:predict',
      {'instances': [{'x': X, 'client_id': 'b/2'}]},
      403,
    ),
    (
      'personalized_models:predict',
      {'instances': [{'x': X, 'client_id': c} for c in ('anna', 'd d')]},
      403,
    ),
    (
      'personalized_models:predict',
      {'inputs': {'x': [X], 'client_id': [{'b64': 'Yi8y'}]}},
      403,
    ),
    (
      'personalized_models:predict',
      {
        'signature_name': 'serving_raw',
        'instances': [{**RAW, 'client_id': 'd d'}],
      },
      403,
    ),
    (
      'personalized_models:classify',
      {'examples': [{**RAW, 'client_id': 'anna'}]},
      200,
    ),
    (
      'personalized_models:classify',
      {'context': {'client_id': 'd d'}, 'examples': [RAW]},
      403,
    ),
    ('personalized_models:classify', {'examples': [RAW]}, 400),
    ('anna/metadata', None, 200),
    ('', None, 403),
  ],
)
def test_a_client_asks_for_its_own_model_alone(served, path, content, status):
  url = f'/v1/models/{path}'.rstrip('/')
  reply = ask(served, url, 'hers', content)
  assert reply.status_code == status, reply.text
  if content:
    reply = ask(served, url, 'secret', content)
    assert reply.status_code == (200 if status == 403 else status), reply.text


def _field(number, content):
  return bytes([number << 3 | 2, len(content)]) + content


def test_a_client_is_who_the_signature_takes_it_for(served):
  """Of a feature that is written twice parsers read different values."""
  example = tf.train.Example()
  for name, value in RAW.items():
    example.features.feature[name].float_list.value.append(value)

  def content(*features):
    feature = b''.join(features)
    entry = _field(1, b'client_id') + _field(2, feature)
    features = example.features.SerializeToString() + _field(1, entry)
    text = base64.b64encode(_field(1, features)).decode()
    return {
      'signature_name': 'classify',
      'inputs': {'inputs': [{'b64': text}]},
    }

  theirs, hers = (_field(1, _field(1, name)) for name in (b'd d', b'anna'))
  url = '/v1/models/personalized_models:predict'
  crafted = content(theirs, _field(3, b''), hers)
  for token, asked, status in (
    ('hers', content(hers), 200),
    ('hers', content(theirs), 403),
    ('hers', crafted, 403),
    ('secret', crafted, 200),
  ):
    assert ask(served, url, token, asked).status_code == status
  of_another, of_crafted = (
    ask(served, url, 'secret', one).json() for one in (content(theirs), crafted)
  )
  assert of_crafted == of_another
  for damaged in (b'junk', b''):
    text = base64.b64encode(damaged).decode()
    asked = {**crafted, 'inputs': {'inputs': [{'b64': text}]}}
    assert ask(served, url, 'hers', asked).status_code == 400


def test_a_client_is_told_no_names(served):
  reply = ask(served, '/v1/models/bob', 'hers')
  assert reply.json() == {'error': "unknown model 'bob'"}
  assert 'anna' in ask(served, '/v1/models/bob', 'secret').text
  assert ask(served, '/metrics', 'hers').status_code == 403


def test_the_bundle_of_another_client(export_folder, monkeypatch):
  store = models.ModelStore(export_folder)
  inputs = {'x': np.float32([X])}
  store.seen_by(access.Caller(client_id='anna')).get('anna').predict(
    'serving_default', inputs
  )
  of_another = store.seen_by(access.Caller(client_id='d d'))
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 600)
  for look in (of_another.get, of_another.statuses):
    for version in (None, 1, 2, 'stable'):
      with pytest.raises(errors.RequestError) as error:
        look('anna', version)
      assert str(error.value) == "unknown model 'anna'"
      assert error.value.status == 404
  # Of what is not loaded is not known yet whose it is.
  unloaded = models.ModelStore(export_folder)
  with pytest.raises(errors.RequestError, match="unknown model 'anna'"):
    unloaded.seen_by(of_another.caller).get('anna', 2)
  unloaded = models.ModelStore(export_folder)
  with unloaded.refreshed():
    seen = unloaded.seen_by(access.Caller(client_id='anna'))
    with pytest.raises(errors.RequestError, match="unknown model 'anna'"):
      seen.statuses('anna')
  store.get('anna').predict('serving_default', inputs)
  assert store.seen_by(access.Caller(client_id='anna')).statuses('anna')


def test_a_bundle_without_its_manifest_is_unknown_to_a_client(
  export_folder, tmp_path
):
  """As while it is copied; after that it is loaded again."""
  name = 'personalized_models'
  shutil.copytree(export_folder / name, tmp_path / 'export' / name)
  extra = tmp_path / 'export' / name / '1' / 'assets.extra'
  extra.rename(tmp_path / 'aside')
  store = models.ModelStore(tmp_path / 'export')
  inputs = {'x': np.float32([X]), 'client_id': np.array([b'd d'], object)}
  store.get(name).predict('serving_default', inputs)
  restricted = store.seen_by(access.Caller(client_id='anna'))
  with pytest.raises(errors.RequestError, match='unknown model') as error:
    restricted.get(name)
  assert error.value.status == 404
  (tmp_path / 'aside').rename(extra)
  with pytest.raises(errors.RequestError, match="of client 'anna'") as error:
    restricted.get(name).predict('serving_default', inputs)
  assert error.value.status == 403
  assert store.get(name).row_wise


def test_grpc(served):
  request = predict_pb2.PredictRequest()
  request.model_spec.name = 'personalized_models'
  request.inputs['x'].CopyFrom(tf.make_tensor_proto([X, X], tf.float32))
  request.inputs['client_id'].CopyFrom(tf.make_tensor_proto(['anna', 'b/2']))
  examples = classification_pb2.ClassificationRequest()
  examples.model_spec.name = 'personalized_models'
  row = examples.input.example_list.examples.add()
  row.features.feature['client_id'].bytes_list.value.append(b'b/2')
  for name, value in RAW.items():
    row.features.feature[name].float_list.value.append(value)

  def code(call, message, token):
    metadata = [('authorization', f'Bearer {token}')] if token else []
    try:
      call(message, timeout=30, metadata=metadata)
    except grpc.RpcError as error:
      return error.code().name
    return 'OK'

  stub = prediction_service_pb2_grpc.PredictionServiceStub(served.channel)
  assert code(stub.Predict, request, None) == 'UNAUTHENTICATED'
  assert code(stub.Predict, request, 'secret') == 'OK'
  assert code(stub.Predict, request, 'hers') == 'PERMISSION_DENIED'
  assert code(stub.Classify, examples, 'hers') == 'PERMISSION_DENIED'
  request.inputs['client_id'].CopyFrom(tf.make_tensor_proto(['anna', 'anna']))
  assert code(stub.Predict, request, 'hers') == 'OK'


def test_the_access_log_names_the_caller(served, access_log):
  ask(served, '/v1/models/anna', 'hers')
  ask(served, '/v1/models/anna', 'wrong')
  lines = access_log(2)
  seen = {(line['caller'], line['status']) for line in lines}
  assert seen == {("anna's phone", '200'), ('', '401')}
  assert 'hers' not in str(lines)
