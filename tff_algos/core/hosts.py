"""Hosts that are this machine alone."""

import ipaddress


def is_loopback(host: str) -> bool:
  """Returns whether no other machine is reached by, or reaches, a host.

  Args:
    host: Name or address; of names `localhost` alone is known.
  """
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return host == 'localhost'
