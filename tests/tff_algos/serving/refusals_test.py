"""Bad requests are refused at their pace, and good ones answered at once."""

import socket
import time
import types

import grpc
import httpx
import pytest

from tests.testing import ports as ports_lib
from tff_algos.serving import refusals, server, server_config

GOOD = b'{"instances": [[1, 2, 3, 4]]}'
PREDICT = '/tensorflow.serving.PredictionService/Predict'
SECONDS = 0.7


@pytest.fixture(name='ports', scope='module')
def make_ports(small_store):
  config = server_config.ServerConfig(
    rest_api_port=0, port=0, max_connections=48, max_waiting=48
  )
  with server.running(small_store, config) as ports:
    yield ports


def send_no_http(ports):
  address = ('127.0.0.1', ports.rest_api_port)
  with socket.create_connection(address, timeout=20) as connection:
    connection.sendall(b'no HTTP\r\n\r\n')
    assert b'malformed request' in ports_lib.read_all(connection)


def post(ports, body):
  url = f'http://127.0.0.1:{ports.rest_api_port}/v1/models/anna:predict'
  return httpx.post(url, content=body, timeout=20).status_code


def send_no_json(ports):
  assert post(ports, b'{') == 400


def send_no_message(ports):
  with grpc.insecure_channel(f'127.0.0.1:{ports.port}') as channel:
    with pytest.raises(grpc.RpcError) as error:
      channel.unary_unary(PREDICT)(b'no message', timeout=20)
  assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize('send', [send_no_http, send_no_json, send_no_message])
def test_a_refusal_waits_for_its_time(ports, monkeypatch, send):
  send(ports)  # Slower than others, as it is the first.
  monkeypatch.setattr(refusals.Pace, 'seconds', lambda pace: SECONDS)
  start = time.monotonic()
  send(ports)
  assert time.monotonic() - start >= SECONDS


def test_good_requests_are_not_paced(ports, monkeypatch):
  def refuse(pace):
    raise AssertionError(pace)

  monkeypatch.setattr(refusals.Pace, 'seconds', refuse)
  assert post(ports, GOOD) == 200


def test_the_pace_is_50_a_second_and_few_wait(monkeypatch):
  now = 100.0
  clock = types.SimpleNamespace(monotonic=lambda: now)
  monkeypatch.setattr(refusals, 'time', clock)
  pace = refusals.Pace(max_waiting=3)
  # One is refused at once, three wait, and there is no place for others.
  waits = [pace.seconds() for _ in range(6)]
  assert waits == pytest.approx([0, 0.02, 0.04, 0.06, 0, 0])
  now += 0.03  # There is place for one.
  assert pace.seconds() == pytest.approx(0.05)
  now += 1  # Time without bad requests is not saved up.
  assert [pace.seconds() for _ in range(2)] == pytest.approx([0, 0.02])
