"""Clients of a real server: plain, with TLS and with a token."""

import hashlib
import json
import socket
import threading

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.testing import certificates
from tff_algos.core import errors
from tff_algos.serving import (
  client_tls,
  clients,
  messages,
  models,
  server,
  server_config,
)

BODY = {'signature_name': 'serving_default', 'instances': [[1, 2, 3, 4]]}
PATH = '/v1/models/anna:predict'


@pytest.fixture(name='store', scope='module')
def make_store(export_folder):
  return models.ModelStore(export_folder)


@pytest.fixture(name='secured', scope='module')
def make_secured(store, tmp_path_factory):
  """URLs of a server with mTLS and tokens, and a client's options."""
  folder = tmp_path_factory.mktemp('secured')
  ca = certificates.Authority(folder / 'ca')
  own, client = ca.issue_local('server'), ca.issue('client', 'anna')
  digest = hashlib.sha256(b'secret').hexdigest()
  (folder / 'tokens.json').write_text(json.dumps({'a': {'sha256': digest}}))
  config = server_config.ServerConfig(
    rest_api_port=0,
    port=0,
    token_file=str(folder / 'tokens.json'),
    tls_certificate=own.certificate,
    tls_key=own.key,
    tls_client_ca=ca.path,
  )
  with server.running(store, config) as ports:
    yield (
      f'https://127.0.0.1:{ports.rest_api_port}',
      f'grpcs://127.0.0.1:{ports.port}',
      {'token': 'secret', 'tls': client_tls.ClientTls(ca.path, *client)},
    )


def test_a_port_that_is_none_is_named():
  with pytest.raises(errors.UserError, match="url 'http://a:85o1': Port could"):
    clients.Server('http://a:85o1').port  # noqa: B018


def test_a_prefix_is_part_of_the_path(store):
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with server.running(store, config) as ports:
    url = f'http://127.0.0.1:{ports.rest_api_port}/no'
    with clients.rest(clients.Server(url), PATH) as ask:
      with pytest.raises(errors.RequestError, match='POST /no/v1/models/anna'):
        ask(b'{}')


def test_tls_and_token(secured):
  rest_url, grpc_url, options = secured
  with clients.rest(clients.Server(rest_url, **options), PATH) as ask:
    for _ in range(2):
      (row,) = json.loads(ask(json.dumps(BODY).encode()))['predictions']
  asked = clients.Server(grpc_url, **options)
  message = messages.predict_request(asked, 'anna', None, BODY)
  with clients.grpc_method(asked, 'Predict') as ask:
    reply = predict_pb2.PredictResponse.FromString(ask(message))
  assert tf.make_ndarray(reply.outputs['class_id']) == [row['class_id']]
  del options['token']
  with clients.rest(clients.Server(rest_url, **options), PATH) as ask:
    with pytest.raises(errors.RequestError, match='a valid token') as error:
      ask(b'{}')
    assert error.value.status == 401
  with clients.grpc_method(
    clients.Server(grpc_url, **options), 'Predict'
  ) as ask:
    with pytest.raises(grpc.RpcError, match='UNAUTHENTICATED'):
      ask(message)


def test_proxies_of_the_environment_are_not_asked(store, monkeypatch):
  for name in ('http_proxy', 'grpc_proxy'):
    monkeypatch.setenv(name, 'http://127.0.0.1:1')
  for name in ('no_proxy', 'no_grpc_proxy'):
    monkeypatch.delenv(name, raising=False)
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with server.running(store, config) as ports:
    asked = clients.Server(f'http://127.0.0.1:{ports.rest_api_port}')
    with clients.rest(asked, PATH) as ask:
      (row,) = json.loads(ask(json.dumps(BODY).encode()))['predictions']
    asked = clients.Server(f'grpc://127.0.0.1:{ports.port}')
    message = messages.predict_request(asked, 'anna', None, BODY)
    with clients.grpc_method(asked, 'Predict') as ask:
      reply = predict_pb2.PredictResponse.FromString(ask(message))
  assert tf.make_ndarray(reply.outputs['class_id']) == [row['class_id']]


def test_an_idle_connection_that_was_ended_is_opened_again():
  reply = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'
  with socket.create_server(('127.0.0.1', 0)) as listener:

    def serve():
      for _ in range(2):
        connection, _ = listener.accept()
        with connection:
          connection.recv(10_000)
          connection.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    with clients.rest(clients.Server(f'http://127.0.0.1:{port}'), '/') as ask:
      assert ask(b'') == b'{}'
      assert ask(b'') == b'{}'
    thread.join()


def test_parts_of_urls():
  ports = {'http': 80, 'https': 443, 'grpc': 8500, 'grpcs': 8500}
  for scheme, port in ports.items():
    assert clients.Server(f'{scheme}://a/models/').port == port
  assert clients.Server('http://a/models/').prefix == '/models'
  assert clients.Server('grpc://[::1]:9').host == '::1'
  for url, text in (('ftp://a', 'must start with'), ('http:///', 'no host')):
    with pytest.raises(errors.UserError, match=text):
      clients.Server(url).host  # noqa: B018
