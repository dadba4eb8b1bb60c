"""A real S3 server (moto's) on loopback, and a proxy that injects faults."""

import contextlib
import http.client
import http.server
import os
import threading
import urllib.parse
from collections.abc import Iterator
from unittest import mock

BUCKET = 'bucket'


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
    super().__init__((shown_at, 0), _Handler)
    self.target = (host, port)
    self.url = f'http://{shown_at}:{self.server_address[1]}'
    self.requests: list[tuple[str, str, str]] = []
    self.fault = lambda method, path: None

  def handle_error(self, request, client_address):
    pass  # A client may hang up.


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
    connection = http.client.HTTPConnection(*self.server.target)
    with contextlib.closing(connection):
      connection.request(self.command, self.path, body, dict(self.headers))
      response = connection.getresponse()
      content = response.read()
    if fault == 'lost':
      self.close_connection = True
      return
    self.send_response(response.status)
    for name, value in response.getheaders():
      if name.lower() not in ('connection', 'transfer-encoding', 'date'):
        self.send_header(name, value)
    self.end_headers()
    if self.command != 'HEAD':
      self.wfile.write(content[: len(content) // 2] if fault else content)
    self.close_connection = bool(fault)

  do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815

  def log_message(self, *unused):
    pass


@contextlib.contextmanager
def shown_at(proxy: Proxy, host: str) -> Iterator[str]:
  """Shows the server at another address of this machine; yields its URL."""
  with _serving(Proxy(*proxy.target, host)) as shown:
    yield shown.url


@contextlib.contextmanager
def _serving(proxy: Proxy) -> Iterator[Proxy]:
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
