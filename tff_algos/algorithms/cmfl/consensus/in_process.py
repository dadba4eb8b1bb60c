"""Simulated network in one process, deterministic, on a virtual clock.

Every envelope is delivered once for each delay in its fate: never if there is
none (lost), twice if there are two (duplicated). Envelopes with different
delays may be reordered.
"""

import dataclasses
import heapq
import itertools
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tff_algos.algorithms.cmfl.consensus import endpoint as endpoint_lib
from tff_algos.core import checks, errors, seeds


class Network(Protocol):
  """Delays, losses and duplicates of envelopes."""

  def fate(
    self, number: int, envelope: endpoint_lib.Envelope
  ) -> tuple[float, ...]:
    """Returns the delay of each copy of an envelope, in seconds.

    Args:
      number: Number of envelopes sent before it.
      envelope: The envelope.
    """
    ...


@dataclasses.dataclass(frozen=True)
class SeededNetwork:
  """Random delays, losses and duplicates, a function of the seed.

  Attributes:
    min_delay_seconds: Shortest delay, >= 0.
    max_delay_seconds: Longest delay, >= the shortest; uniform between.
    drop_rate: Probability that an envelope is lost, in [0, 1).
    duplicate_rate: Probability that it arrives twice, in [0, 1].
    seed: >= 0.
  """

  min_delay_seconds: float = 0.01
  max_delay_seconds: float = 0.01
  drop_rate: float = 0.0
  duplicate_rate: float = 0.0
  seed: int = 0

  def __post_init__(self):
    checks.check_at_least('min_delay_seconds', self.min_delay_seconds, 0)
    checks.check_at_least(
      'max_delay_seconds', self.max_delay_seconds, self.min_delay_seconds
    )
    checks.check_below_one('drop_rate', self.drop_rate)
    checks.check_fraction('duplicate_rate', self.duplicate_rate)
    checks.check_int('seed', self.seed, minimum=0)

  def fate(
    self, number: int, envelope: endpoint_lib.Envelope
  ) -> tuple[float, ...]:
    """Returns the delays of an envelope's copies, in seconds."""
    if not self.drop_rate and not self.duplicate_rate:
      if self.min_delay_seconds == self.max_delay_seconds:
        return (self.min_delay_seconds,)
    generator = seeds.numpy_generator(self.seed, 'consensus_network', number)
    lost, twice, *delays = generator.uniform(size=4)
    if lost < self.drop_rate:
      return ()
    spread = self.max_delay_seconds - self.min_delay_seconds
    copies = delays if twice < self.duplicate_rate else delays[:1]
    return tuple(self.min_delay_seconds + spread * float(d) for d in copies)


class MessageCounts(NamedTuple):
  """Counts of sent messages, including lost and forged envelopes."""

  num_messages: int
  num_bytes: int


def run(
  endpoints: Mapping[str, endpoint_lib.Endpoint], network: Network
) -> MessageCounts:
  """Runs the members until no message and no timer is pending.

  Args:
    endpoints: Endpoints by member.
    network: Delays and losses of their envelopes.

  Raises:
    ConfigError: If the network returns a negative delay.
  """
  numbers = itertools.count()  # Orders events at the same time.
  agenda: list[tuple[float, int, str, bytes | None]] = []
  num_messages = num_bytes = 0

  def carry(now: float, envelopes: list[endpoint_lib.Envelope]) -> None:
    nonlocal num_messages, num_bytes
    for envelope in envelopes:
      for delay in network.fate(num_messages, envelope):
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
  return MessageCounts(num_messages, num_bytes)
