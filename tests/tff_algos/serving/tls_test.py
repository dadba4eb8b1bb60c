"""TLS at both ports: handshakes, client certificates, reloads, other bytes."""

import os
import pathlib
import shutil
import socket
import ssl
import time

import grpc
import httpx
import pytest
from cryptography import x509
from tensorflow_serving.apis import (
  get_model_status_pb2,
  model_service_pb2_grpc,
)

from tests.testing import certificates
from tests.testing import ports as ports_lib
from tff_algos.core import errors
from tff_algos.serving import connections, server, server_config, tls

RECEIVE_SECONDS = 0.5


@pytest.fixture(name='ca')
def make_ca(tmp_path):
  return certificates.Authority(tmp_path / 'ca')


@pytest.fixture(name='other_ca')
def make_other_ca(tmp_path):
  return certificates.Authority(tmp_path / 'other')


@pytest.fixture(name='client')
def make_client(ca):
  return ca.issue('client', 'phone of anna')


@pytest.fixture(name='ports')
def make_ports(small_store, ca):
  own = ca.issue_local('server')
  config = server_config.ServerConfig(
    rest_api_port=0,
    port=0,
    max_connections=3,
    receive_seconds=RECEIVE_SECONDS,
    access_log=True,
    tls_certificate=own.certificate,
    tls_key=own.key,
    tls_client_ca=ca.path,
  )
  with server.running(small_store, config) as ports:
    yield ports


def rest(ports, ca, client=None):
  """Returns the status of an answer; None if the connection was refused."""
  context = ssl.create_default_context(cafile=ca.path)
  if client is not None:
    context.load_cert_chain(*client)
  url = f'https://127.0.0.1:{ports.rest_api_port}/v1/models/anna'
  try:
    return httpx.get(url, verify=context, timeout=20).status_code
  except httpx.TransportError:
    return None


def grpc_state(ports, ca, client=None):
  """Returns the code of an answer."""
  files = (client.key, client.certificate) if client else ()
  contents = [pathlib.Path(file).read_bytes() for file in (ca.path, *files)]
  message = get_model_status_pb2.GetModelStatusRequest()
  message.model_spec.name = 'anna'
  with grpc.secure_channel(
    f'127.0.0.1:{ports.port}', grpc.ssl_channel_credentials(*contents)
  ) as channel:
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    try:
      stub.GetModelStatus(message, timeout=20)
    except grpc.RpcError as error:
      return error.code().name
  return 'OK'


def check_asks(ports, ca, client):
  assert rest(ports, ca, client) == 200
  assert grpc_state(ports, ca, client) == 'OK'


def check_cannot_ask(ports, ca, client):
  assert rest(ports, ca, client) is None
  assert grpc_state(ports, ca, client) == 'UNAVAILABLE'


def test_certificates_of_both_sides_are_verified(ports, ca, other_ca, client):
  check_asks(ports, ca, client)
  check_cannot_ask(ports, ca, None)
  check_cannot_ask(ports, ca, other_ca.issue('client', 'phone of anna'))
  check_cannot_ask(ports, other_ca, client)


@pytest.mark.parametrize(
  ('common_name', 'others', 'name'),
  [
    ('phone of anna', [], 'phone of anna'),
    ('çelik', [x509.DNSName('other.example')], 'çelik'),
    (
      None,
      [
        x509.UniformResourceIdentifier('spiffe://example/anna'),
        x509.DNSName('other.example'),
      ],
      'spiffe://example/anna',
    ),
    (None, [], ''),
  ],
)
def test_the_access_log_names_the_certificate(
  ports, ca, common_name, others, name, access_log
):
  check_asks(ports, ca, ca.issue('client', common_name, *others))
  lines = access_log(2)
  assert {line['api'] for line in lines} == {'rest', 'grpc'}
  assert {line['certificate'] for line in lines} == {name}
  assert {line['caller'] for line in lines} == {''}


def test_tokens_beside_certificates(small_store, ca, client, tmp_path):
  own = ca.issue_local('server')
  path = tmp_path / 'tokens.json'
  path.write_text('{"a": {"sha256": "%s"}}' % ('0' * 64))
  config = server_config.ServerConfig(
    rest_api_port=0,
    port=0,
    tls_certificate=own.certificate,
    tls_key=own.key,
    tls_client_ca=ca.path,
    token_file=str(path),
  )
  with server.running(small_store, config) as ports:
    assert rest(ports, ca, client) == 401
    assert grpc_state(ports, ca, client) == 'UNAUTHENTICATED'


def test_files_are_read_again(ports, ca, other_ca, client, caplog):
  folder = pathlib.Path(ca.path).parent
  own = other_ca.issue_local('server')
  check_asks(ports, ca, client)
  os.replace(own.certificate, folder / 'server.pem')
  check_asks(ports, ca, client)  # The new key is not there yet.
  assert 'certificates before are used' in caplog.text
  assert 'KEY_VALUES_MISMATCH' in caplog.text
  os.replace(own.key, folder / 'server.key')
  check_asks(ports, other_ca, client)
  check_cannot_ask(ports, ca, client)
  (folder / 'server.key').unlink()
  check_asks(ports, other_ca, client)
  assert 'No such file' in caplog.text


def test_clients_of_a_removed_ca_are_refused(ports, ca, other_ca, client):
  server_ca = certificates.Authority(pathlib.Path(ca.path).parent / 'copy')
  shutil.copy(ca.path, server_ca.path)
  check_asks(ports, server_ca, client)
  shutil.copy(other_ca.path, ca.path)
  check_cannot_ask(ports, server_ca, client)
  check_asks(ports, server_ca, other_ca.issue('client', 'new'))


def read_all(port, content):
  with socket.create_connection(('127.0.0.1', port), timeout=20) as connection:
    connection.sendall(content)
    return ports_lib.read_all(connection)


def test_other_bytes_than_tls_are_refused(ports, ca, client, capfd, caplog):
  for port in ports:
    for content in (
      b'GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n',
      b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      bytes(range(256)) * 10,
      b'\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03',
    ):
      assert b'200' not in read_all(port, content)
  check_asks(ports, ca, client)
  assert 'Traceback' not in capfd.readouterr().err + caplog.text


@pytest.mark.parametrize('start', [b'', b'\x16\x03\x01\x02\x00\x01'])
def test_handshakes_have_a_time_limit(ports, start):
  for port in ports:
    begun = time.monotonic()
    assert read_all(port, start) == b''
    assert RECEIVE_SECONDS * 0.9 < time.monotonic() - begun < 10


def test_headers_have_a_time_limit(ports, ca, client):
  context = ssl.create_default_context(cafile=ca.path)
  context.load_cert_chain(*client)
  address = ('127.0.0.1', ports.rest_api_port)
  with (
    socket.create_connection(address, timeout=20) as plain,
    context.wrap_socket(plain, server_hostname='127.0.0.1') as connection,
  ):
    begun = time.monotonic()
    connection.sendall(b'GET /v1')
    assert connection.recv(100) == b''
  assert RECEIVE_SECONDS * 0.8 < time.monotonic() - begun < 10


def test_unfinished_handshakes_give_way(ports, ca, client, monkeypatch):
  monkeypatch.setattr(connections, '_PATIENCE_SECONDS', 0)
  address = ('127.0.0.1', ports.rest_api_port)
  others = [socket.create_connection(address, timeout=20) for _ in range(6)]
  assert rest(ports, ca, client) == 200
  for one in others:
    one.close()


@pytest.mark.parametrize(
  ('changes', 'text'),
  [
    ({'tls_certificate': None}, 'both --tls_certificate and --tls_key'),
    ({'tls_key': None}, 'both --tls_certificate and --tls_key'),
    ({'tls_key': 'another.key'}, 'tls_key .*KEY_VALUES_MISMATCH'),
    ({'tls_key': 'encrypted.key'}, 'tls_key .* without a password'),
    ({'tls_certificate': 'junk'}, 'tls_certificate .*cannot be used: .*PEM'),
    ({'tls_key': 'junk'}, 'tls_key .*cannot be used: .*PEM'),
    ({'tls_certificate': 'none'}, 'tls_certificate .*No such file'),
    ({'tls_client_ca': 'junk'}, 'tls_client_ca .*NO_CERTIFICATE_OR_CRL_FOUND'),
    ({'tls_client_ca': ''}, 'tls_client_ca .*Is a directory'),
  ],
)
def test_files_that_cannot_be_used(ca, changes, text):
  own, another = ca.issue_local('server'), ca.issue_local('another')
  folder = pathlib.Path(ca.path).parent
  (folder / 'junk').write_text('junk')
  certificates.encrypt(another.key, folder / 'encrypted.key')
  config = server_config.ServerConfig(
    tls_certificate=own.certificate, tls_key=own.key, tls_client_ca=ca.path
  )._replace(
    **{
      flag: None if file is None else str(folder / file)
      for flag, file in changes.items()
    }
  )
  with pytest.raises(errors.UserError, match=text):
    tls.certificates(config)


def test_without_files_there_is_no_tls():
  assert tls.certificates(server_config.ServerConfig()) is None
