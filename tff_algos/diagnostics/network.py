"""Checks of the loopback network between TFF and its worker."""

import contextlib
import socket
from collections.abc import Mapping

from tff_algos.diagnostics import result

_PROXY_VARIABLES = ('grpc_proxy', 'http_proxy', 'https_proxy', 'all_proxy')
_LOOPBACK = ('localhost', '127.0.0.1')
_TIMEOUT_SECONDS = 5.0


def check_port() -> result.CheckResult:
  """Checks that loopback ports can be opened and connected to."""
  try:
    with contextlib.ExitStack() as stack:
      server = stack.enter_context(socket.create_server(('127.0.0.1', 0)))
      server.settimeout(_TIMEOUT_SECONDS)
      address = server.getsockname()
      client = stack.enter_context(
        socket.create_connection(address, _TIMEOUT_SECONDS)
      )
      accepted = stack.enter_context(server.accept()[0])
      accepted.settimeout(_TIMEOUT_SECONDS)
      client.sendall(b'?')
      accepted.recv(1)
  except OSError as error:
    return result.CheckResult(
      'loopback',
      'fail',
      f'{error}',
      'Programs must be able to listen on 127.0.0.1 and reach each other '
      'there: check the firewall, the sandbox and `ip link show lo`.',
    )
  return result.CheckResult(
    'loopback', 'ok', f'port {address[1]} was free and answered'
  )


def check_proxies(environment: Mapping[str, str]) -> result.CheckResult:
  """Checks for proxy variables that redirect loopback traffic."""
  lower = {name.lower(): value for name, value in environment.items()}
  proxies = [name for name in _PROXY_VARIABLES if lower.get(name)]
  exempt = lower.get('no_grpc_proxy', '') + ',' + lower.get('no_proxy', '')
  exempt = {host.strip() for host in exempt.split(',')}
  if not proxies or '*' in exempt or exempt.issuperset(_LOOPBACK):
    found = ', '.join(proxies) or 'no proxy variables'
    return result.CheckResult('proxies', 'ok', found)
  return result.CheckResult(
    'proxies',
    'warn',
    f'{", ".join(proxies)} set, and no_proxy does not exempt loopback',
    'Our programs ignore proxies on loopback; others, such as curl, need '
    '`export no_proxy=localhost,127.0.0.1`.',
  )
