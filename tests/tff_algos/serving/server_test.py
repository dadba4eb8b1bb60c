"""Ports: any free one, one in use, a host that is not ours; signals."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import types
from concurrent import futures

import grpc
import httpx
import pytest

from tests.testing import certificates
from tff_algos.core import errors
from tff_algos.serving import lanes as lanes_lib
from tff_algos.serving import models, server, server_config


def is_free(port):
  with socket.socket() as probe:
    return probe.connect_ex(('127.0.0.1', port)) != 0


def check_refused(store, config, text):
  with (
    pytest.raises(errors.UserError, match=text),
    server.running(store, config),
  ):
    pass


def test_ports_are_released(small_store):
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with server.running(small_store, config) as ports:
    assert not is_free(ports.rest_api_port)
    assert not is_free(ports.port)
  assert is_free(ports.rest_api_port)
  assert is_free(ports.port)
  # And can be taken again at once.
  again = server_config.ServerConfig(
    rest_api_port=ports.rest_api_port, port=ports.port
  )
  with server.running(small_store, again) as same:
    assert same == ports


def test_connections_are_accepted_one_by_one_and_wait_meanwhile(
  small_store, monkeypatch
):
  """Those of a flood, too, between which others are answered."""
  selector_loop = asyncio.selector_events.BaseSelectorEventLoop
  original, is_free = selector_loop._accept_connection, threading.Event()
  limits = []

  def accept(loop, factory, listener, context, server_, backlog, *others):
    limits.append(backlog)
    assert is_free.wait(20)
    original(loop, factory, listener, context, server_, backlog, *others)

  monkeypatch.setattr(selector_loop, '_accept_connection', accept)
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with (
    server.running(small_store, config) as ports,
    contextlib.ExitStack() as connections,
  ):
    address = ('127.0.0.1', ports.rest_api_port)
    try:
      for _ in range(30):
        connected = socket.create_connection(address, 0.5)
        connections.enter_context(connected)
    finally:
      is_free.set()
    connected.settimeout(20)
    connected.sendall(b'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')
    assert connected.recv(15) == b'HTTP/1.1 200 OK'
  assert set(limits) == {1} and len(limits) >= 30


@pytest.mark.parametrize('flag', ['rest_api_port', 'port'])
def test_port_in_use(small_store, flag):
  with socket.create_server(('127.0.0.1', 0)) as other:
    port = other.getsockname()[1]
    config = server_config.ServerConfig(rest_api_port=0, port=0)._replace(
      **{flag: port}
    )
    text = f'port {port} on 127.0.0.1 is in use.*--{flag}=PORT'
    check_refused(small_store, config, text)


def test_second_server_does_not_share_the_grpc_port(small_store):
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with server.running(small_store, config) as ports:
    again = config._replace(port=ports.port)
    check_refused(small_store, again, 'is in use')


def test_host_that_is_not_ours(small_store):
  config = server_config.ServerConfig(
    host='192.0.2.1', rest_api_port=0, port=0, is_open=True
  )
  check_refused(small_store, config, "host '192.0.2.1'.*with --host")


def test_ipv6(small_store):
  if not socket.has_ipv6:
    pytest.skip('no IPv6 here')
  config = server_config.ServerConfig(host='::1', rest_api_port=0, port=0)
  try:
    socket.create_server(('::1', 0), family=socket.AF_INET6).close()
  except OSError:
    pytest.skip('no IPv6 loopback here')
  with server.running(small_store, config) as ports:
    with socket.create_connection(('::1', ports.rest_api_port), timeout=5):
      pass


def test_a_file_of_ports_that_cannot_be_written(small_store, monkeypatch):
  monkeypatch.setattr(server.sys, 'setswitchinterval', lambda _: None)
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with pytest.raises(errors.UserError, match='cannot be written: No such file'):
    server.serve_until_signal(small_store, config, '/missing/ports.json')


def test_the_file_of_ports_of_another_server_is_left(tmp_path):
  path = tmp_path / 'ports.json'
  with server._port_file(path, server.Ports(1, 2)):
    path.write_text('{}')
  assert path.read_text() == '{}'
  with server._port_file(path, server.Ports(1, 2)):
    path.unlink()


def test_serves_until_a_signal_and_leaves_nothing(
  small_store, tmp_path, monkeypatch
):
  tuned = []
  monkeypatch.setattr(
    server, 'sys', types.SimpleNamespace(setswitchinterval=tuned.append)
  )
  collector = types.SimpleNamespace(
    collect=lambda: tuned.append('collected'),
    freeze=lambda: tuned.append('frozen'),
  )
  monkeypatch.setattr(server, 'gc', collector)
  path = tmp_path / 'ports.json'
  numbers = (signal.SIGTERM, signal.SIGINT)
  before = [signal.getsignal(number) for number in numbers]
  seen, has_ended = [], threading.Event()

  def stop():
    while not has_ended.is_set():
      if path.exists():
        seen.extend(json.loads(path.read_text()).values())
        seen.extend([is_free(port) for port in seen])
        os.kill(os.getpid(), signal.SIGTERM)
        return
      time.sleep(0.01)

  stopper = threading.Thread(target=stop)
  stopper.start()
  try:
    config = server_config.ServerConfig(rest_api_port=0, port=0)
    server.serve_until_signal(small_store, config, path)
  finally:
    has_ended.set()
    stopper.join()
  assert tuned == [server._SWITCH_SECONDS, 'collected', 'frozen']
  assert seen[2:] == [False, False]
  assert [is_free(port) for port in seen[:2]] == [True, True]
  assert not list(tmp_path.iterdir())
  assert [signal.getsignal(number) for number in numbers] == before


def test_a_signal_while_models_are_loaded_is_not_the_servers():
  def load_newest():
    os.kill(os.getpid(), signal.SIGTERM)

  before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
  try:
    with pytest.raises(SystemExit):
      server.serve_until_signal(
        types.SimpleNamespace(load_newest=load_newest),
        server_config.ServerConfig(rest_api_port=0, port=0),
      )
  finally:
    signal.signal(signal.SIGTERM, before)


def test_both_apis_have_the_same_grace_period(small_store, monkeypatch, caplog):
  monkeypatch.setattr(server, '_GRACE_SECONDS', 2)
  are_asked = threading.Barrier(3)

  def submit(self, *arguments, **options):
    are_asked.wait(20)
    return futures.Future()

  def ask_rest(port):
    url = f'http://127.0.0.1:{port}/v1/models/anna:predict'
    return httpx.post(url, content=b'{}', timeout=30), time.monotonic()

  def ask_grpc(port):
    with grpc.insecure_channel(f'127.0.0.1:{port}') as channel:
      predict = '/tensorflow.serving.PredictionService/Predict'
      with pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(predict)(b'', timeout=30)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    return time.monotonic()

  monkeypatch.setattr(lanes_lib.Lanes, 'submit', submit)
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with futures.ThreadPoolExecutor(2) as pool:
    with server.running(small_store, config) as ports:
      by_rest = pool.submit(ask_rest, ports.rest_api_port)
      by_grpc = pool.submit(ask_grpc, ports.port)
      are_asked.wait(20)
    reply, rest_end = by_rest.result(20)
  assert abs(rest_end - by_grpc.result(20)) < 1.5
  assert reply.status_code == 503
  assert reply.json() == {'error': 'the server stops'}
  assert not [one for one in caplog.records if one.exc_info]


@pytest.mark.parametrize(
  ('host', 'text'),
  [
    ('127.0.0.1', 'nothing can be served'),
    ('192.0.2.1', 'may be reached'),  # Flags are checked before models load.
  ],
)
def test_a_server_without_models_does_not_listen(
  tmp_path, monkeypatch, host, text
):
  monkeypatch.setattr(server, '_rest', None)  # Must not be called.
  with pytest.raises(errors.UserError, match=text):
    server.serve_until_signal(
      models.ModelStore(tmp_path),
      server_config.ServerConfig(host=host, rest_api_port=0, port=0),
    )


@pytest.mark.parametrize('host', ['0.0.0.0', '192.0.2.1', '::', 'example.org'])
def test_other_machines_need_a_token_or_a_word(small_store, host):
  config = server_config.ServerConfig(host=host, rest_api_port=0, port=0)
  text = 'may be reached from other machines.*--token_file or --tls_client_ca'
  check_refused(small_store, config, text)


@pytest.fixture(name='tls')
def make_tls(tmp_path):
  ca = certificates.Authority(tmp_path / 'ca')
  own = ca.issue_local('server')
  return {
    'tls_certificate': own.certificate,
    'tls_key': own.key,
    'tls_client_ca': ca.path,
  }


def check_is_let_listen(small_store, **options):
  """This machine has no such address, so that nothing is open to others."""
  config = server_config.ServerConfig(host='192.0.2.1', **options)
  check_refused(small_store, config, 'cannot listen')


def test_tokens_without_tls_are_warned_of(small_store, tmp_path, tls, caplog):
  path = tmp_path / 'tokens.json'
  path.write_text('{}')
  check_is_let_listen(small_store, token_file=str(path), **tls)
  assert 'Tokens travel' not in caplog.text
  check_is_let_listen(small_store, token_file=str(path))
  assert caplog.text.count("Tokens travel to host '192.0.2.1' as they") == 1
  config = server_config.ServerConfig(
    rest_api_port=0, port=0, token_file=str(path)
  )
  with server.running(small_store, config):
    assert caplog.text.count('Tokens travel') == 1


def test_certificates_of_clients_are_authentication(small_store, tls):
  check_is_let_listen(small_store, **tls)
  tls['tls_client_ca'] = None
  config = server_config.ServerConfig(host='192.0.2.1', **tls)
  check_refused(small_store, config, 'may be reached')


def test_open_to_everybody_if_told_so(small_store):
  config = server_config.ServerConfig(
    host='0.0.0.0', rest_api_port=0, port=0, is_open=True
  )
  with server.running(small_store, config) as ports:
    assert not is_free(ports.rest_api_port)
