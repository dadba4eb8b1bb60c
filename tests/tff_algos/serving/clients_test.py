"""Connections, URLs and files of TLS; handshakes are in `predict_test.py`."""

import contextlib
import socket
import threading

import pytest

from tests.testing import certificates
from tff_algos.core import errors
from tff_algos.serving import clients


@pytest.fixture(name='ca')
def make_ca(tmp_path):
  return certificates.Authority(tmp_path / 'ca')


def test_a_port_that_is_none_is_named():
  with pytest.raises(errors.UserError, match="url 'http://a:85o1': Port could"):
    clients.Server('http://a:85o1').port  # noqa: B018


def test_files_of_tls_are_not_left_unused():
  server = clients.Server('http://a', tls=clients.ClientTls('ca.pem'))
  with pytest.raises(errors.UserError, match='asked without TLS, so that'):
    with clients.rest(server, '/'):
      pass


def test_context_of_tls(ca):
  trusted = clients.ClientTls(ca.path).context().get_ca_certs()
  assert [one['subject'] for one in trusted] == [((('commonName', 'ca'),),)]


def test_files_of_tls_that_cannot_be_used(ca):
  own, another = ca.issue('a', 'a'), ca.issue('b', 'b')
  for files, text in (
    ((None, own.certificate, None), 'both --tls_certificate and --tls_key'),
    ((None, None, own.key), 'both --tls_certificate and --tls_key'),
    ((ca.path, own.certificate, another.key), 'KEY_VALUES_MISMATCH'),
    (('/missing', None, None), '--tls_ca /missing'),
  ):
    with pytest.raises(errors.UserError, match=text):
      clients.ClientTls(*files).context()


def test_a_prefix_is_part_of_the_path(served):
  url = str(served.http.base_url.join('/no'))
  with clients.rest(clients.Server(url), '/v1/models/anna:predict') as ask:
    with pytest.raises(errors.RequestError, match='POST /no/v1/models/anna'):
      ask(b'{}')


@contextlib.contextmanager
def _asking(reply, num_connections=1):
  """Yields how to ask a server that reads a little, answers and closes."""
  with socket.create_server(('127.0.0.1', 0)) as listener:

    def serve():
      for _ in range(num_connections):
        connection, _ = listener.accept()
        with connection:
          connection.recv(10_000)
          connection.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    with clients.rest(clients.Server(f'http://127.0.0.1:{port}'), '/') as ask:
      yield ask
    thread.join()


def test_an_idle_connection_that_was_ended_is_opened_again():
  reply = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'
  with _asking(reply, num_connections=2) as ask:
    assert ask(b'') == b'{}'
    assert ask(b'') == b'{}'


def test_a_refusal_is_read_although_the_body_was_not():
  reply = b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno'
  with _asking(reply) as ask:
    with pytest.raises(errors.RequestError, match='^no$') as error:
      ask(bytes(2**24))
  assert error.value.status == 401


def test_parts_of_urls():
  ports = {'http': 80, 'https': 443}
  for scheme, port in ports.items():
    assert clients.Server(f'{scheme}://a/models/').port == port
  assert clients.Server('http://a/models/').prefix == '/models'
  assert clients.Server('http://[::1]:9').host == '::1'
  for url, text in (('grpc://a', 'must start with'), ('http:///', 'no host')):
    with pytest.raises(errors.UserError, match=text):
      clients.Server(url).host  # noqa: B018
