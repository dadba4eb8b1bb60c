"""Hosts with their own addresses on one machine: network namespaces."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

_NETWORK = '10.213.77'


class Hosts:
  """Namespaces that are joined by a bridge, each with an address.

  Attributes:
    addresses: IPv4 address of each host.
    gateway: Address of this machine in their network.
  """

  def __init__(self, names: Sequence[str]) -> None:
    """Takes the names of the namespaces."""
    self._names = names
    self.gateway = f'{_NETWORK}.254'
    self.addresses = [f'{_NETWORK}.{i + 1}' for i in range(len(names))]

  def start(
    self, index: int, *command: str, **arguments: object
  ) -> subprocess.Popen[str]:
    """Starts a program on a host; arguments as of `subprocess.Popen`."""
    return subprocess.Popen(
      ['ip', 'netns', 'exec', self._names[index], *command],
      text=True,
      **arguments,
    )

  def unplug(self, index: int) -> None:
    """Cuts a host off: what it sends and is sent is lost."""
    _ip('link', 'set', _outside(self._names[index]), 'down')


@contextlib.contextmanager
def running(num_hosts: int) -> Iterator[Hosts]:
  """Makes hosts, and removes them; skips the test where that is not allowed."""
  if os.geteuid() or not shutil.which('ip'):
    pytest.skip('network namespaces need root and the program ip')
  names = [f'tff{os.getpid()}h{i}' for i in range(num_hosts)]
  bridge = f'tff{os.getpid()}'
  hosts = Hosts(names)
  with contextlib.ExitStack() as stack:
    stack.callback(_ip, 'link', 'del', bridge)
    _ip('link', 'add', bridge, 'type', 'bridge')
    _ip('addr', 'add', f'{hosts.gateway}/24', 'dev', bridge)
    _ip('link', 'set', bridge, 'up')
    for name, address in zip(names, hosts.addresses, strict=True):
      _ip('netns', 'add', name)
      stack.callback(_ip, 'netns', 'del', name)
      outside = _outside(name)
      _ip('link', 'add', outside, 'type', 'veth', 'peer', 'eth0', 'netns', name)
      # The end of a namespace removes its cable some time later.
      stack.callback(_ip, 'link', 'del', outside)
      _ip('link', 'set', outside, 'master', bridge, 'up')
      for words in (
        ('addr', 'add', f'{address}/24', 'dev', 'eth0'),
        ('link', 'set', 'eth0', 'up'),
        ('link', 'set', 'lo', 'up'),
      ):
        _ip('-n', name, *words)
    yield hosts


def _outside(name: str) -> str:
  return f'{name}o'


def _ip(*words: str) -> None:
  subprocess.run(['ip', *words], check=True, capture_output=True)
