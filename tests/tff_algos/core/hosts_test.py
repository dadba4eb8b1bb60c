"""Hosts that are this machine alone."""

import pytest

from tff_algos.core import hosts


@pytest.mark.parametrize(
  ('host', 'expected'),
  [
    ('127.0.0.1', True),
    ('127.8.9.1', True),
    ('::1', True),
    ('localhost', True),
    ('0.0.0.0', False),
    ('::', False),
    ('10.0.0.1', False),
    ('fd00::2', False),
    ('localhost.example.org', False),
    ('127.0.0.1.example.org', False),
    ('', False),
  ],
)
def test_hosts(host, expected):
  assert hosts.is_loopback(host) == expected


@pytest.mark.parametrize(
  ('address', 'expected'),
  [
    ('127.0.0.1:80', ('127.0.0.1', 80)),
    ('[::1]:8000', ('::1', 8000)),
    ('worker-0.training:1', ('worker-0.training', 1)),
  ],
)
def test_address_is_parted(address, expected):
  host, port = hosts.split(address)
  assert (host, port) == expected
  assert f'{hosts.in_address(host)}:{port}' == address
