"""Confinement to this machine of servers that authenticate nobody.

TensorFlow's server and TFF's worker listen on every network interface, and run
any graph that is sent to them, as the user of the process. Neither can be bound
to loopback; so the kernel drops, by classic BPF programs on their sockets, the
packets that came by another interface than `lo`.

Other users of this machine are not kept out: they reach loopback too.
"""

import ctypes
import errno
import os
import pathlib
import socket
import struct
from collections.abc import Iterable

from absl import logging

from tff_algos.core import errors, hosts

# <asm-generic/socket.h>; Python has no names for them.
_SO_ATTACH_FILTER = 26
_SO_ATTACH_REUSEPORT_CBPF = 51
# <linux/filter.h>: the operation codes, and where the interface of a packet is.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_PACKET_INTERFACE = 0xFFFFF000 + 8
_WHOLE_PACKET, _NOTHING = 0xFFFFFFFF, 0
# Of a descriptor that another thread has closed, or has again for a file.
_CLOSED = (errno.ENOENT, errno.EBADF, errno.ENOTSOCK)


def require_trust(
  what: str, addresses: Iterable[str], is_trusted: bool
) -> None:
  """Refuses addresses beyond loopback, or warns if the network is trusted.

  Args:
    what: Origin of the addresses, such as `'TF_CONFIG'`.
    addresses: `host:port` of servers that authenticate nobody.
    is_trusted: The option `config.runtime.trust_network`.

  Raises:
    ConfigError: If one is beyond loopback and the network is not trusted.
  """
  beyond = [
    one for one in addresses if not hosts.is_loopback(hosts.split(one)[0])
  ]
  if not beyond:
    return
  fact = (
    f'{what} names {", ".join(beyond)}, beyond loopback: TensorFlow and TFF '
    'neither authenticate nor encrypt there, and whoever reaches these ports '
    'can run any graph, read the data and change the models'
  )
  if not is_trusted:
    raise errors.ConfigError(
      f'{fact}. Close the ports to all other machines (a firewall, a VPN, a '
      'NetworkPolicy), then confirm it by --config.runtime.trust_network=True'
    )
  logging.warning('%s. config.runtime.trust_network accepts that.', fact)


def reserve_port() -> tuple[socket.socket, int]:
  """Reserves a free port for a server in another process, on `lo` only.

  That server must listen on every interface with SO_REUSEPORT, as gRPC's do.
  The socket returned then is the first of its group and receives, and drops,
  what came by other interfaces, and all while that server does not listen yet.

  Returns:
    The socket, to be kept open while the server runs, and the port.

  Raises:
    RuntimeFailureError: If no port is free.
  """
  dual = socket.has_dualstack_ipv6()
  reservation = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
  try:
    if dual:
      reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind(('', 0))
  except OSError as error:
    reservation.close()
    raise errors.RuntimeFailureError(f'no free port: {error}.') from error
  port = reservation.getsockname()[1]
  try:
    _attach(reservation, _SO_ATTACH_FILTER, _NOTHING, _NOTHING)
    _attach(reservation, _SO_ATTACH_REUSEPORT_CBPF, 1, 0)
    reservation.listen()
  except OSError as error:
    _warn_open(port, error)
  return reservation, port


def close_port(port: int) -> bool:
  """Closes a port of this process to what comes by other interfaces than `lo`.

  Args:
    port: Port at which this process may listen.

  Returns:
    Whether it listens there.
  """
  found = False
  for name in os.listdir('/proc/self/fd'):
    path = pathlib.Path('/proc/self/fd', name)
    try:
      if os.readlink(path).startswith('socket:'):
        with socket.socket(fileno=os.dup(int(name))) as one:
          if _listens_at(one, port):
            found = True
            try:
              _attach(one, _SO_ATTACH_FILTER, _WHOLE_PACKET, _NOTHING)
            except OSError as error:
              _warn_open(port, error)
    except OSError as error:
      if error.errno not in _CLOSED:
        raise
  return found


def _listens_at(one: socket.socket, port: int) -> bool:
  return (
    one.family in (socket.AF_INET, socket.AF_INET6)
    and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    and one.getsockname()[1] == port
  )


def _attach(
  one: socket.socket, option: int, of_loopback: int, of_others: int
) -> None:
  """Attaches a program whose result depends on a packet's interface."""
  operations = (
    (_LOAD, 0, 0, _PACKET_INTERFACE),
    (_JUMP_IF_EQUAL, 0, 1, socket.if_nametoindex('lo')),
    (_RETURN, 0, 0, of_loopback),
    (_RETURN, 0, 0, of_others),
  )
  code = b''.join(struct.pack('HBBI', *one) for one in operations)
  held = ctypes.create_string_buffer(code)
  program = struct.pack('HxxxxxxP', len(operations), ctypes.addressof(held))
  one.setsockopt(socket.SOL_SOCKET, option, program)


def _warn_open(port: int, error: OSError) -> None:
  logging.warning(
    'Port %d cannot be closed to other machines (%s): whoever reaches it can '
    'run any graph as this user. Guard it by a firewall.',
    port,
    error,
  )
