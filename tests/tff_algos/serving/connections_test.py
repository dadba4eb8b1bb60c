"""Slow clients lose their connections; newcomers take the place of the idle."""

import asyncio
import contextlib
import json
import socket
import time

import httpx
import pytest
import uvicorn
from uvicorn import server as uvicorn_server

from tests.testing import patience
from tests.testing import ports as ports_lib
from tff_algos.serving import connections, refusals, server, server_config

RECEIVE_SECONDS = 0.5
START = b'POST /v1/models/anna:predict HTTP/1.1\r\nHost: x\r\n'
BODY = b'{"instances": [[1, 2, 3, 4]]}'


CONFIG = server_config.ServerConfig(
  rest_api_port=0,
  port=0,
  max_connections=3,
  receive_seconds=RECEIVE_SECONDS,
  answer_seconds=5,
)


@pytest.fixture(name='port', scope='module')
def make_port(small_store):
  with server.running(small_store, CONFIG) as ports:
    yield ports.rest_api_port


@pytest.fixture(name='patient_port', scope='module')
def make_patient_port(small_store):
  config = CONFIG._replace(receive_seconds=30, answer_seconds=30)
  with server.running(small_store, config) as ports:
    yield ports.rest_api_port


def connect(port, content=b''):
  connection = socket.create_connection(('127.0.0.1', port), timeout=20)
  connection.sendall(content)
  return connection


def answer(port):
  url = f'http://127.0.0.1:{port}/v1/models/anna:predict'
  return httpx.post(url, content=BODY, timeout=20)


def test_only_the_client_is_waited_for_with_a_limit():
  """Not the server: a request may wait and be answered for longer."""
  limits = CONFIG._replace(receive_seconds=0.1, answer_seconds=0.1)

  async def app(scope, receive, send):
    if scope['method'] == 'POST':
      while (await receive())['more_body']:
        pass
    await asyncio.sleep(0.7)
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    for _ in range(1000 if scope['path'] == '/large' else 1):
      body = {'type': 'http.response.body', 'body': bytes(2**16)}
      await send({**body, 'more_body': True})
    await send({'type': 'http.response.body', 'body': b'end'})

  async def ask(content, pause=0.0):
    reader, writer = await asyncio.open_connection(*address, limit=2**10)
    writer.write(content)
    await asyncio.sleep(pause)
    with contextlib.suppress(ConnectionError):
      return await reader.read()
    return b''

  async def ask_all():
    nonlocal address
    config = uvicorn.Config(app, lifespan='off', ws='none', log_config=None)
    serving = await asyncio.get_running_loop().create_server(
      lambda: connections.Connection(
        limits,
        refusals.Pace(1),
        config=config,
        server_state=uvicorn_server.ServerState(),
        app_state={},
      ),
      '127.0.0.1',
      0,
    )
    async with serving:
      address = serving.sockets[0].getsockname()[:2]
      head = b' HTTP/1.1\r\nHost: x\r\n'
      return await asyncio.gather(
        ask(b'GET /' + head + b'\r\n'),
        ask(b'POST /' + head + b'Content-Length: 1\r\n\r\n1'),
        ask(b'POST /' + head + b'Content-Length: 9\r\n\r\n1'),
        ask(b'GET /large' + head + b'\r\n', pause=1.5),
      )

  address = None
  whole, posted, unsent, unread = asyncio.run(ask_all())
  assert whole.endswith(b'end\r\n0\r\n\r\n')
  assert posted.endswith(b'end\r\n0\r\n\r\n')
  assert unsent == b''
  assert b'end' not in unread


@pytest.mark.parametrize('start', [b'', b'POST /v1', START + b'X: 1\r\n'])
def test_headers_have_a_time_limit(port, start):
  begun = time.monotonic()
  with connect(port, start) as connection:
    assert ports_lib.read_all(connection) == b''
  assert RECEIVE_SECONDS * 0.9 < time.monotonic() - begun < 10


def test_a_body_has_a_time_limit(port):
  with connect(port, START + b'Content-Length: 9\r\n\r\n{') as connection:
    head, body = ports_lib.read_all(connection).split(b'\r\n\r\n')
  assert head.startswith(b'HTTP/1.1 408 ')
  error = json.loads(body)['error']
  assert error == 'the request was not received within 0.5 seconds'


def test_no_http_is_answered_in_json(port):
  with connect(port, b'\0\1\r\n\r\n') as connection:
    head, body = ports_lib.read_all(connection).split(b'\r\n\r\n')
  assert head.startswith(b'HTTP/1.1 400 ')
  assert b'application/json' in head
  assert json.loads(body)['error'].startswith('malformed request: Invalid HTTP')


def test_a_newcomer_takes_the_place_of_the_oldest(patient_port, monkeypatch):
  port = patient_port
  monkeypatch.setattr(connections, '_PATIENCE_SECONDS', 0.1)
  oldest, *others = [connect(port) for _ in range(3)]
  time.sleep(0.2)
  assert answer(port).status_code == 200
  assert ports_lib.read_all(oldest) == b''
  for one in others:
    one.sendall(START + b'Content-Length: %d\r\n\r\n' % len(BODY) + BODY)
    assert one.recv(100).startswith(b'HTTP/1.1 200 ')
    one.close()
  oldest.close()


def test_a_newcomer_is_refused_where_all_are_new(port, monkeypatch):
  monkeypatch.setattr(connections, '_PATIENCE_SECONDS', 60)
  others = [connect(port) for _ in range(3)]
  with connect(port) as connection:
    received = ports_lib.read_all(connection)
  for one in others:
    one.close()
  assert received.startswith(b'HTTP/1.1 503 ')
  assert b'retry-after: 1\r\n' in received.lower()
  assert b'{"error":"too many connections; send again later"}' in received


CHUNKED = b' HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n'


@pytest.mark.parametrize('path', [b'/v1/models/anna:predict', b'/healthz'])
@pytest.mark.parametrize('method', [b'POST', b'HEAD'])
def test_malformed_chunks_are_refused_once(port, caplog, method, path):
  with connect(port, method + b' ' + path + CHUNKED + b'zz\r\n') as connection:
    received = ports_lib.read_all(connection)
  assert received.startswith(b'HTTP/1.1 400 ')
  assert received.count(b'HTTP/1.1') == 1
  assert answer(port).status_code == 200  # What failed meanwhile is logged.
  assert not [one for one in caplog.records if one.exc_info]


def test_chunks_after_the_answer_end_the_connection(port, caplog):
  with connect(port, b'POST /nope' + CHUNKED) as connection:
    received = b''
    while not received.endswith(b'}\n'):  # Its head may come before the rest.
      received += connection.recv(2**16)
    assert received.startswith(b'HTTP/1.1 404 ')
    connection.sendall(b'zz\r\n')
    assert ports_lib.read_all(connection) == b''
  assert not [one for one in caplog.records if one.exc_info]


def test_a_body_is_not_read_after_its_answer(patient_port):
  """The connection ends although its client goes on to send."""
  with connect(patient_port, b'POST /nope' + CHUNKED) as connection:
    assert connection.recv(2**16).startswith(b'HTTP/1.1 404 ')
    chunk = b'10000\r\n' + b'x' * 2**16 + b'\r\n'
    deadline = time.monotonic() + 10
    sent = 0
    with pytest.raises(ConnectionError):
      while time.monotonic() < deadline:
        connection.sendall(chunk)
        sent += len(chunk)
  assert sent < 64 * 2**20  # What the machine holds between the two.


def test_clients_that_leave_are_no_success(patient_port):
  start = START + b'Content-Length: %d\r\n\r\n' % len(BODY)
  with connect(patient_port, start + BODY[:5]):
    pass
  url = f'http://127.0.0.1:{patient_port}/metrics'
  patience.until(lambda: 'status="499"' in httpx.get(url).text)


def test_a_pipelined_request_may_come_in_parts(patient_port, monkeypatch):
  monkeypatch.setattr(connections, '_PATIENCE_SECONDS', 0.1)
  request = START + b'Content-Length: %d\r\n\r\n' % len(BODY) + BODY
  received = b''
  with connect(patient_port, request + request[:-9]) as connection:
    for answers, rest in ((1, request[-9:]), (2, b'')):
      while received.count(b'"logits"') < answers:
        chunk = connection.recv(2**16)
        assert chunk, received
        received += chunk
      time.sleep(0.3)
      connection.sendall(rest)
  assert received.count(b'HTTP/1.1 200 ') == 2
