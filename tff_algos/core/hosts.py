"""Names and addresses of hosts."""

import ipaddress
import socket


def is_loopback(host: str) -> bool:
  """Returns whether no other machine is reached by, or reaches, a host.

  Args:
    host: Name or address; of names `localhost` alone is known.
  """
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return host == 'localhost'


def in_address(host: str) -> str:
  """Returns a host as it stands before `:port`; IPv6 in brackets."""
  return f'[{host}]' if ':' in host else host


def split(address: str) -> tuple[str, int]:
  """Returns host and port of `host:port`; an IPv6 address without brackets."""
  host, _, port = address.rpartition(':')
  return host.strip('[]'), int(port)


def family(host: str) -> socket.AddressFamily:
  """Returns the family of a host's sockets."""
  return socket.AF_INET6 if ':' in host else socket.AF_INET
