"""Ports that the kernel closes, tried by real connections.

All connections of a test come by `lo`; so the other interfaces of a stranger are
played by declaring that `lo` is not the loopback interface.
"""

import contextlib
import errno
import os
import socket

import pytest

from tff_algos.core import errors
from tff_algos.runtimes import loopback

# A dropped packet has no answer.
_SILENCE_SECONDS = 0.3


def test_other_machines_are_refused_unless_the_network_is_trusted(caplog):
  addresses = ('127.0.0.1:8000', '10.0.0.8:8000')
  with pytest.raises(
    errors.ConfigError,
    match=r'TF_CONFIG names 10\.0\.0\.8:8000, beyond .*trust_network=True',
  ):
    loopback.require_trust('TF_CONFIG', addresses, False)
  assert not caplog.records
  loopback.require_trust('TF_CONFIG', addresses, True)
  (record,) = caplog.records
  assert record.levelname == 'WARNING'
  assert 'neither authenticate nor encrypt' in record.getMessage()


def test_loopback_needs_no_trust(caplog):
  loopback.require_trust('TF_CONFIG', ('127.0.0.1:8000', '[::1]:1'), False)
  assert not caplog.records


@pytest.fixture
def strangers(monkeypatch):
  """All that connects comes by another interface than loopback."""
  monkeypatch.setattr(socket, 'if_nametoindex', lambda name: 1_000_000)


def _connects(port: int) -> bool:
  with contextlib.suppress(TimeoutError):
    socket.create_connection(('127.0.0.1', port), _SILENCE_SECONDS).close()
    return True
  return False


def _server_on_all_interfaces():
  return socket.create_server(('', 0))


def test_a_closed_port_is_open_to_this_machine():
  with _server_on_all_interfaces() as server:
    port = server.getsockname()[1]
    assert loopback.close_port(port)
    assert _connects(port)


@pytest.mark.usefixtures('strangers')
def test_a_closed_port_is_closed_to_others_and_no_other_port_is():
  with (
    _server_on_all_interfaces() as server,
    _server_on_all_interfaces() as other,
  ):
    port = server.getsockname()[1]
    assert _connects(port)
    assert loopback.close_port(port)
    assert not _connects(port)
    assert _connects(other.getsockname()[1])


@pytest.mark.parametrize('number', [errno.EBADF, errno.EMFILE])
def test_a_socket_that_another_thread_closes_is_passed_over(
  monkeypatch, number
):
  with socket.socket() as closed, _server_on_all_interfaces() as server:

    def dup(descriptor, dup=os.dup):
      if descriptor == closed.fileno():
        raise OSError(number, os.strerror(number))
      return dup(descriptor)

    monkeypatch.setattr(os, 'dup', dup)
    port = server.getsockname()[1]
    if number == errno.EBADF:
      assert loopback.close_port(port)
    else:  # It may be the one that listens.
      with pytest.raises(OSError, match='Too many open files'):
        loopback.close_port(port)


def test_a_port_without_a_listener_is_told():
  with socket.socket() as bound:
    bound.bind(('127.0.0.1', 0))
    assert not loopback.close_port(bound.getsockname()[1])


def _second_server(port: int) -> socket.socket:
  """Listens as gRPC does in a process of its own."""
  return socket.create_server(
    ('', port),
    family=socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET,
    dualstack_ipv6=socket.has_dualstack_ipv6(),
    reuse_port=True,
  )


def test_a_reserved_port_leads_this_machine_to_the_second_server():
  reservation, port = loopback.reserve_port()
  with reservation:
    assert not _connects(port)
    with _second_server(port) as second:
      for _ in range(8):
        with socket.create_connection(('127.0.0.1', port), 5):
          second.settimeout(5)
          second.accept()[0].close()


@pytest.mark.usefixtures('strangers')
def test_a_reserved_port_leads_others_nowhere():
  reservation, port = loopback.reserve_port()
  with reservation, _second_server(port):
    assert not any(_connects(port) for _ in range(4))


def test_a_kernel_that_refuses_is_told(monkeypatch, caplog):
  monkeypatch.setattr(loopback, '_SO_ATTACH_FILTER', 9999)
  reservation, port = loopback.reserve_port()
  with reservation, _second_server(port):
    # As before there was such a filter: open to all, and said so.
    assert _connects(port)
  assert f'Port {port} cannot be closed to other machines' in caplog.text
