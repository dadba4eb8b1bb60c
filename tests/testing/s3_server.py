"""A real S3 server (moto's) on loopback, and proxies before it.

One injects faults; another speaks Google's dialect of the same XML interface.
"""

import contextlib
import http.client
import http.server
import json
import os
import threading
import urllib.parse
from collections.abc import Iterator
from typing import NamedTuple, TypeVar
from unittest import mock

BUCKET = 'bucket'
_GENERATION = 'x-goog-generation'
# moto looks at no signature, but refuses requests without one.
_ANY_SIGNATURE = (
  'AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, '
  'SignedHeaders=host, Signature=0'
)


class _Response(NamedTuple):
  status: int
  headers: list[tuple[str, str]]
  content: bytes


class Proxy(http.server.ThreadingHTTPServer):
  """Forwards requests to a server; fails those that `fault` chooses.

  Attributes:
    url: Address of the proxy.
    requests: Method and path of every request, and of a read its range.
    fault: Called with method and path; returns what happens to the request:
      None, 'status' (503, not forwarded), 'forbidden' (403, not forwarded),
      'lost' (forwarded, no response), 'torn' (half the response's body).
  """

  daemon_threads = True

  def __init__(self, host: str, port: int, shown_at: str = '127.0.0.1'):
    super().__init__((shown_at, 0), self._handler())
    self.target = (host, port)
    self.url = f'http://{shown_at}:{self.server_address[1]}'
    self.requests: list[tuple[str, str, str]] = []
    self.fault = lambda method, path: None

  def _handler(self):
    return _Handler

  def handle_error(self, request, client_address):
    pass  # A client may hang up.


class GoogleProxy(Proxy):
  """Speaks Google Cloud Storage's dialect: writes are conditional by generation.

  As documented: https://cloud.google.com/storage/docs/xml-api/reference-headers.
  ETags are no condition of a write, and every write makes a new generation.
  """

  def __init__(self, host: str, port: int):
    super().__init__(host, port)
    self.exchanging = threading.Lock()
    self.generations: dict[str, int] = {}
    self.num_writes = 0

  def _handler(self):
    return _GoogleHandler


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'
  server: Proxy

  def _forward(self):
    path = urllib.parse.urlsplit(self.path).path
    body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
    self.server.requests.append(
      (self.command, path, self.headers.get('Range', ''))
    )
    fault = self.server.fault(self.command, path)
    if fault in ('status', 'forbidden'):
      self.send_response(503 if fault == 'status' else 403)
      self.send_header('Content-Length', '0')
      self.end_headers()
      return
    response = self._exchange(path, dict(self.headers), body)
    content = response.content
    if fault == 'lost':
      self.close_connection = True
      return
    self.send_response(response.status)
    for name, value in response.headers:
      if name.lower() not in ('connection', 'transfer-encoding', 'date'):
        self.send_header(name, value)
    self.end_headers()
    if self.command != 'HEAD':
      self.wfile.write(content[: len(content) // 2] if fault else content)
    self.close_connection = bool(fault)

  do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815

  def _exchange(self, path, headers, body) -> _Response:
    del path
    connection = http.client.HTTPConnection(*self.server.target)
    with contextlib.closing(connection):
      connection.request(self.command, self.path, body, headers)
      response = connection.getresponse()
      return _Response(response.status, response.getheaders(), response.read())

  def log_message(self, *unused):
    pass


class _GoogleHandler(_Handler):
  server: GoogleProxy

  def _exchange(self, path, headers, body) -> _Response:
    generations = self.server.generations
    headers = {name.lower(): value for name, value in headers.items()}
    headers['authorization'] = _ANY_SIGNATURE
    expected = headers.pop('x-goog-if-generation-match', None)
    if self.command == 'PUT':
      headers = {
        name: value
        for name, value in headers.items()
        if name not in ('if-match', 'if-none-match')
      }
    with self.server.exchanging:
      now = generations.get(path, 0)
      if expected is not None and int(expected) != now:
        return _Response(412, [('Content-Length', '0')], b'')
      response = super()._exchange(path, headers, body)
      if response.status < 300 and self.command == 'PUT':
        self.server.num_writes += 1
        generations[path] = self.server.num_writes
      elif response.status < 300 and self.command == 'DELETE':
        generations.pop(path, None)
      if path in generations:
        response.headers.append((_GENERATION, str(generations[path])))
    return response


_AnyProxy = TypeVar('_AnyProxy', bound=Proxy)


@contextlib.contextmanager
def shown_at(proxy: Proxy, host: str) -> Iterator[Proxy]:
  """Shows the server at another address of this machine."""
  with _serving(Proxy(*proxy.target, host)) as shown:
    yield shown


@contextlib.contextmanager
def _serving(proxy: _AnyProxy) -> Iterator[_AnyProxy]:
  thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
  thread.start()
  try:
    yield proxy
  finally:
    proxy.shutdown()
    proxy.server_close()
    thread.join()


@contextlib.contextmanager
def running() -> Iterator[Proxy]:
  """Runs a server with an empty bucket; sets the environment of its clients."""
  import logging

  from moto import server

  logging.getLogger('werkzeug').setLevel(logging.ERROR)
  moto = server.ThreadedMotoServer('127.0.0.1', 0, verbose=False)
  moto.start()
  host, port = moto.get_host_and_port()
  connection = http.client.HTTPConnection(host, port)
  connection.request('PUT', f'/{BUCKET}')
  assert connection.getresponse().status == 200
  connection.close()
  try:
    with _serving(Proxy(host, port)) as proxy:
      environment = {
        'AWS_ACCESS_KEY_ID': 'key',
        'AWS_SECRET_ACCESS_KEY': 'secret',
        'AWS_REGION': 'us-east-1',
        'AWS_ENDPOINT_URL': proxy.url,
      }
      with mock.patch.dict(os.environ, environment):
        yield proxy
  finally:
    moto.stop()


@contextlib.contextmanager
def speaking_google(proxy: Proxy) -> Iterator[GoogleProxy]:
  """Shows the server as Google's; sets the environment of its clients."""
  with _serving(GoogleProxy(*proxy.target)) as google:
    account = {
      'gcs_base_url': google.url,
      'disable_oauth': True,
      **dict.fromkeys(('client_email', 'private_key', 'private_key_id'), ''),
    }
    environment = {'GOOGLE_SERVICE_ACCOUNT_KEY': json.dumps(account)}
    with mock.patch.dict(os.environ, environment):
      yield google
