"""Simulated network in one process, deterministic, on a virtual clock.

Every envelope is delivered once for each delay in its fate: never if there is
none (lost), twice if there are two (duplicated). Envelopes with different
delays may be reordered.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tff_algos.algorithms.cmfl.consensus import endpoint as endpoint_lib
from tff_algos.core import errors

# From the number of envelopes sent before an envelope, and the envelope, to the
# delay of each of its copies in seconds.
Fate: TypeAlias = Callable[[int, endpoint_lib.Envelope], tuple[float, ...]]


def steady(number: int, envelope: endpoint_lib.Envelope) -> tuple[float, ...]:
  """Returns the fate of 10 ms, once, of every envelope."""
  del number, envelope
  return (0.01,)


def run(
  endpoints: Mapping[str, endpoint_lib.Endpoint], fate: Fate
) -> tuple[int, int]:
  """Runs the members until no message and no timer is pending.

  Args:
    endpoints: Endpoints by member.
    fate: Delays and losses of their envelopes.

  Returns:
    The numbers of messages and of bytes sent, including lost and forged ones.

  Raises:
    ConfigError: If a delay is negative.
  """
  numbers = itertools.count()  # Orders events at the same time.
  agenda: list[tuple[float, int, str, bytes | None]] = []
  num_messages = num_bytes = 0

  def carry(now: float, envelopes: list[endpoint_lib.Envelope]) -> None:
    nonlocal num_messages, num_bytes
    for envelope in envelopes:
      for delay in fate(num_messages, envelope):
        if not delay >= 0:
          raise errors.ConfigError(f'a delay must be >= 0 seconds, got {delay}')
        event = now + delay, next(numbers), envelope.recipient, envelope.sealed
        heapq.heappush(agenda, event)
      num_messages += 1
      num_bytes += len(envelope.sealed)

  def schedule(member: str, endpoint: endpoint_lib.Endpoint) -> None:
    if endpoint.wake_time is not None:
      heapq.heappush(agenda, (endpoint.wake_time, next(numbers), member, None))

  for member, endpoint in endpoints.items():
    carry(0.0, endpoint.start(0.0))
    schedule(member, endpoint)
  while agenda:
    now, _, member, sealed = heapq.heappop(agenda)
    endpoint = endpoints[member]
    before = endpoint.wake_time
    if sealed is not None:
      carry(now, endpoint.deliver(now, sealed))
    elif before == now:  # Otherwise its timer has been reset since.
      carry(now, endpoint.wake(now))
    if endpoint.wake_time != before:
      schedule(member, endpoint)
  return num_messages, num_bytes
