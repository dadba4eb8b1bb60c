"""Processes that meet, differ, do not come, and get lost.

Each process is a thread here; those of `process_group_test` are real.
"""

import contextlib
import json
import socket
import threading
from concurrent import futures

import pytest

from tests.testing import ports
from tff_algos.core import errors
from tff_algos.runtimes.distributed import peer_processes, process_cluster

_IDENTITY = {'seed': 1, 'model': {'name': 'linear'}}
_PATIENCE_SECONDS = 20.0


class _Group:
  """Processes of one cluster, a thread each."""

  def __init__(self, size):
    self.addresses = ports.free_addresses(size)
    self.met = threading.Barrier(size)
    self._pool = futures.ThreadPoolExecutor(size + 1)

  def start(
    self, index, body=lambda _: None, *, identity=_IDENTITY, seconds=20.0
  ):
    def run():
      ours = process_cluster.Cluster(self.addresses, index)
      with peer_processes.Peers(ours, identity, seconds) as opened:
        self.met.wait(_PATIENCE_SECONDS)
        return body(opened)

    return self._pool.submit(run)


def _news(opened):
  """Returns what a process hears when another is lost."""
  with pytest.raises(errors.RuntimeFailureError) as caught:
    opened.check(_PATIENCE_SECONDS)
  return str(caught.value)


def _end_with(error):
  def body(unused_opened):
    raise error

  return body


def _call(address):
  """Connects as soon as somebody listens there."""
  host, port = address.split(':')
  while True:
    with contextlib.suppress(ConnectionError):
      return socket.create_connection((host, int(port)))


def _reason(future):
  return str(future.exception(_PATIENCE_SECONDS))


def test_all_meet_and_part_without_a_word():
  group = _Group(3)
  running = [
    group.start(index, peer_processes.Peers.check) for index in (2, 0, 1)
  ]
  for future in running:
    assert future.result(_PATIENCE_SECONDS) is None


@pytest.mark.parametrize('lost', [0, 1, 2])
@pytest.mark.parametrize(
  ('error', 'words'),
  [
    (errors.DataError('shard 3 is damaged'), 'ended: shard 3 is damaged'),
    (ValueError('a bug'), 'failed: ValueError: a bug'),
    (KeyboardInterrupt(), 'was interrupted'),
    (SystemExit(143), 'was interrupted'),
  ],
)
def test_all_others_hear_who_ended_and_why(lost, error, words):
  group = _Group(3)
  running = {
    index: group.start(index, _end_with(error) if index == lost else _news)
    for index in range(3)
  }
  assert running.pop(lost).exception(_PATIENCE_SECONDS) is error
  expected = f'process {lost} ({group.addresses[lost]}) {words}. Start all'
  for future in running.values():
    assert future.result(_PATIENCE_SECONDS).startswith(expected)


def test_who_ends_early_and_well_is_not_lost():
  group = _Group(3)
  ended = threading.Event()

  def check_later(opened):
    assert ended.wait(_PATIENCE_SECONDS)
    opened.check(0.2)

  others = [group.start(index, check_later) for index in (0, 2)]
  group.start(1).result(_PATIENCE_SECONDS)
  ended.set()
  for future in others:
    future.result(_PATIENCE_SECONDS)


def test_what_differs_is_named():
  group = _Group(3)
  running = [
    group.start(0),
    group.start(1),
    group.start(2, identity={'seed': 1, 'model': {'name': 'mlp'}}),
  ]
  words = (
    f'process 2 ({group.addresses[2]}) does not run what process 0 '
    f'({group.addresses[0]}) runs (model.name: mlp there, linear here)'
  )
  for future in running:
    assert words in _reason(future)
  assert isinstance(running[0].exception(), errors.ConfigError)


def test_who_does_not_come_is_named():
  group = _Group(3)
  leader = group.start(0, seconds=1.0)
  present = group.start(2, seconds=1.0)
  words = f'process 1 ({group.addresses[1]}) did not come within 1 s'
  for future in (leader, present):
    assert words in _reason(future)


def test_a_leader_that_does_not_come_is_named():
  group = _Group(2)
  words = rf'process 0 \({group.addresses[0]}\) did not come within 0.5 s'
  with pytest.raises(errors.RuntimeFailureError, match=words):
    group.start(1, seconds=0.5).result(_PATIENCE_SECONDS)


def test_who_went_again_is_waited_for():
  group = _Group(3)
  leader = group.start(0)
  early = _call(group.addresses[0])
  early.sendall(json.dumps({'index': 1, 'identity': {}}).encode() + b'\n')
  assert early.recv(100) == b'{"wait": true}\n'
  early.close()
  others = [group.start(2), group.start(1)]
  for future in (leader, *others):
    future.result(_PATIENCE_SECONDS)


def test_the_last_who_comes_as_a_process_stays():
  group = _Group(3)
  leader = group.start(0)
  first = group.start(1)
  # Nobody knows which of the two comes first; one is told of the other.
  second = group.start(1)
  done, _ = futures.wait(
    [first, second], _PATIENCE_SECONDS, futures.FIRST_COMPLETED
  )
  (refused,) = done
  # Each takes its address for a moment; they may meet there already.
  assert _reason(refused).startswith(
    (
      f'another process came as process 1 ({group.addresses[1]})',
      f'cannot listen at {group.addresses[1]}, the address of process 1',
    )
  )
  last = group.start(2)
  for future in (leader, last, *({first, second} - done)):
    future.result(_PATIENCE_SECONDS)


@pytest.mark.parametrize('index', [0, 1])
def test_an_address_in_use_is_named(index):
  group = _Group(2)
  port = int(group.addresses[index].split(':')[1])
  with socket.create_server(('', port)):
    with pytest.raises(
      errors.RuntimeFailureError,
      match=rf'listen at {group.addresses[index]}, .* of process {index} .* in '
      'use. End the program',
    ):
      group.start(index).result(_PATIENCE_SECONDS)


def test_another_program_at_the_address_of_the_leader():
  group = _Group(2)
  port = int(group.addresses[0].split(':')[1])
  with socket.create_server(('', port)) as listener:
    follower = group.start(1)
    connection, _ = listener.accept()
    with connection:
      connection.sendall(b'HTTP/1.1 400 Bad Request\r\n')
      assert 'another program' in _reason(follower)


def test_strangers_are_refused_with_a_line_each(caplog):
  group = _Group(2)
  leader = group.start(0)
  for words in (
    b'GET / HTTP/1.1\r\n',
    b'[]\n',
    b'[' * 100_000 + b'\n',
    b'{"index": [1]}\n',
    b'{"index": 2}\n',
    b'',
  ):
    with _call(group.addresses[0]) as stranger:
      stranger.sendall(words)
      # Closed by the leader; unread words reset the connection.
      with contextlib.suppress(ConnectionError):
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b''
  follower = group.start(1)
  for future in (leader, follower):
    future.result(_PATIENCE_SECONDS)
  lines = [one for one in caplog.messages if 'Refused a connection' in one]
  assert (
    lines
    == ['Refused a connection from 127.0.0.1: no process of this training.'] * 6
  )


def test_a_stranger_who_drips_or_floods_is_not_waited_for(monkeypatch):
  monkeypatch.setattr(peer_processes, '_ANSWER_SECONDS', 0.5)
  monkeypatch.setattr(peer_processes, '_LARGEST_BYTES', 1000)
  group = _Group(2)
  leader = group.start(0)
  stop = threading.Event()

  def drip():
    with _call(group.addresses[0]) as stranger:
      with contextlib.suppress(ConnectionError):
        while not stop.wait(0.05):
          stranger.sendall(b' ')

  def flood():
    with _call(group.addresses[0]) as stranger:
      with contextlib.suppress(ConnectionError):
        while not stop.is_set():
          stranger.sendall(b' ' * 10_000)

  with futures.ThreadPoolExecutor(2) as pool:
    strangers = [pool.submit(drip), pool.submit(flood)]
    try:
      # Refused, not given up: both end before anybody tells them to.
      for one in strangers:
        one.result(_PATIENCE_SECONDS)
      for future in (leader, group.start(1)):
        future.result(_PATIENCE_SECONDS)
    finally:
      stop.set()


def test_no_process_waits_for_silent_strangers(monkeypatch):
  monkeypatch.setattr(peer_processes, '_ANSWER_SECONDS', 2.0)
  group = _Group(2)
  leader = group.start(0)
  with contextlib.ExitStack() as stack:
    strangers = [
      stack.enter_context(_call(group.addresses[0])) for _ in range(3)
    ]
    for future in (leader, group.start(1)):
      future.result(_PATIENCE_SECONDS)
    for one in strangers:
      one.settimeout(_PATIENCE_SECONDS)
      assert one.recv(1) == b''  # Closed, as no process of this training.


def test_processes_of_one_machine_listen_on_loopback_alone():
  (address,) = ports.free_addresses(1)
  host, port = address.split(':')
  for addresses, expected in (
    ((address, '127.0.0.1:1'), host),
    ((address, '10.0.0.7:1'), '0.0.0.0'),
  ):
    cluster = process_cluster.Cluster(addresses, 0)
    # Peers wait for each other; what they listen at is asked of the socket.
    with peer_processes.Peers(cluster, {}, 1.0)._listen() as listener:
      assert listener.getsockname() == (expected, int(port))
