"""Free ports of this machine, and what comes from one."""

import contextlib
import socket


def free_addresses(num_addresses: int) -> tuple[str, ...]:
  """Returns addresses that nobody uses, all different."""
  with contextlib.ExitStack() as stack:
    addresses = []
    for _ in range(num_addresses):
      held = stack.enter_context(socket.socket())
      held.bind(('127.0.0.1', 0))
      addresses.append(f'127.0.0.1:{held.getsockname()[1]}')
  return tuple(addresses)


def read_all(connection: socket.socket) -> bytes:
  """Returns all that is received until the connection ends."""
  received = b''
  with contextlib.suppress(ConnectionResetError):
    while chunk := connection.recv(2**16):
      received += chunk
  return received
