"""A committee member in a process of its own, on sockets and real time.

Every message takes a TCP connection of its own, so a member that dies or comes
late costs the others nothing but its messages. Messages are authenticated but
not encrypted: this is for one machine, or for a network that nobody reads.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping

from tff_algos.algorithms.cmfl.consensus import endpoint as endpoint_lib
from tff_algos.algorithms.cmfl.consensus import member as member_lib
from tff_algos.core import checks, errors

# The proof of 142 members has 0.4 MB; nobody sends more than this.
_LARGEST_BYTES = 1 << 24
_RETRY_SECONDS = 0.05


class _Port:
  """What one member sends and receives."""

  def __init__(self, addresses: Mapping[str, str], patience_seconds: float):
    self.inbox: asyncio.Queue[bytes] = asyncio.Queue()
    self._addresses = addresses
    self._patience_seconds = patience_seconds
    self._sending: set[asyncio.Task] = set()

  def send(self, envelopes: list[endpoint_lib.Envelope]) -> None:
    """Sends in the background; what cannot be delivered is lost."""
    for envelope in envelopes:
      task = asyncio.create_task(self._deliver(envelope))
      self._sending.add(task)
      task.add_done_callback(self._sending.discard)

  async def _deliver(self, envelope: endpoint_lib.Envelope) -> None:
    host, _, port = self._addresses[envelope.recipient].rpartition(':')
    with contextlib.suppress(TimeoutError):
      async with asyncio.timeout(self._patience_seconds):
        while True:
          with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            try:
              writer.write(envelope.sealed)
              await writer.drain()
              return
            finally:
              writer.close()
          # The other may not have started yet.
          await asyncio.sleep(_RETRY_SECONDS)

  async def accept(
    self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
  ) -> None:
    """Reads one message; who says nothing, or too much, is not waited for."""
    try:
      async with asyncio.timeout(self._patience_seconds):
        sealed = await reader.read(_LARGEST_BYTES)
        while not reader.at_eof() and len(sealed) <= _LARGEST_BYTES:
          sealed += await reader.read(_LARGEST_BYTES)
      self.inbox.put_nowait(sealed)
    except (OSError, TimeoutError):
      pass
    finally:
      writer.close()

  async def close(self) -> None:
    for task in self._sending:
      task.cancel()
    await asyncio.gather(*self._sending, return_exceptions=True)


def take_part(
  endpoint: endpoint_lib.Endpoint,
  addresses: Mapping[str, str],
  *,
  linger_seconds: float = 5.0,
) -> member_lib.Outcome:
  """Votes with the other processes, and returns what came of it.

  Args:
    endpoint: Ours.
    addresses: `host:port` of every member; ours is where we listen.
    linger_seconds: How long to stay after the outcome, >= 0: others may still
      need our votes, and a decision may still replace a skip.

  Returns:
    The outcome; its seconds are since we began.

  Raises:
    ConfigError: If an address is malformed or missing.
    RuntimeFailureError: If our address is taken.
  """
  for member in endpoint.member.ballot.committee:
    checks.check_address(f'address of {member!r}', addresses.get(member, ''))
  checks.check_at_least('linger_seconds', linger_seconds, 0)
  return asyncio.run(_take_part(endpoint, addresses, linger_seconds))


async def _take_part(
  endpoint: endpoint_lib.Endpoint,
  addresses: Mapping[str, str],
  linger_seconds: float,
) -> member_lib.Outcome:
  port = _Port(addresses, endpoint.member.ballot.limits.timeout_seconds)
  host, _, number = addresses[endpoint.member_id].rpartition(':')
  try:
    server = await asyncio.start_server(port.accept, host, int(number))
  except OSError as error:
    raise errors.RuntimeFailureError(
      f'{endpoint.member_id!r} cannot listen at {addresses[endpoint.member_id]}: '
      f'{error.strerror}. End the program that does, or take another port'
    ) from error
  async with server:
    try:
      await _converse(endpoint, port, linger_seconds)
    finally:
      await port.close()
  return endpoint.member.outcome


async def _converse(
  endpoint: endpoint_lib.Endpoint, port: _Port, linger_seconds: float
) -> None:
  began = time.monotonic()
  port.send(endpoint.start(0.0))
  leave_time = None
  while True:
    now = time.monotonic() - began
    if endpoint.wake_time is not None:
      leave_time = None
    elif leave_time is None:
      leave_time = now + linger_seconds
    if leave_time is not None and now >= leave_time:
      return
    if endpoint.wake_time is not None and now >= endpoint.wake_time:
      port.send(endpoint.wake(now))
      continue
    until = endpoint.wake_time if leave_time is None else leave_time
    with contextlib.suppress(TimeoutError):
      async with asyncio.timeout(until - now):
        sealed = await port.inbox.get()
        port.send(endpoint.deliver(time.monotonic() - began, sealed))
