"""In-process run of the consensus protocol of a committee.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), Algorithm 2. The result is a
function of ballot, statements, behaviours and fates of messages.

The network is simulated on a virtual clock: every envelope is delivered once
for each delay in its fate: never if there is none (lost), twice if there are
two (duplicated). Envelopes with different delays may be reordered.
"""

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tff_algos.algorithms.cmfl.consensus import authentication, quorum
from tff_algos.algorithms.cmfl.consensus import ballot as ballot_lib
from tff_algos.algorithms.cmfl.consensus import endpoint as endpoint_lib
from tff_algos.algorithms.cmfl.consensus import member as member_lib
from tff_algos.core import errors

# From the number of envelopes sent before an envelope, and the envelope, to the
# delay of each of its copies in seconds.
Fate: TypeAlias = Callable[[int, endpoint_lib.Envelope], tuple[float, ...]]


@dataclasses.dataclass(frozen=True)
class Agreement:
  """Outcome of a vote.

  Attributes:
    value: The accepted statement; None if the update is skipped.
    reason: Reason for skipping; empty for an accepted statement.
    num_views: Number of views, >= 1.
    num_messages: Messages sent by all members, including lost ones.
    num_bytes: Size of the messages, tags included.
    num_refused: Copies refused by their receivers: forged or malformed.
    seconds: Time of the last honest member's outcome, on the virtual clock.
    suspects: Members that requested or voted for another statement than the
      accepted one, reported by at least f + 1 members, so that f malicious
      members together cannot accuse an honest one.
    outcomes: Outcome of each honest member.
  """

  value: str | None
  reason: str
  num_views: int
  num_messages: int
  num_bytes: int
  num_refused: int
  seconds: float
  suspects: frozenset[str]
  outcomes: Mapping[str, member_lib.Outcome]


def steady(number: int, envelope: endpoint_lib.Envelope) -> tuple[float, ...]:
  """Returns the fate of 10 ms, once, of every envelope."""
  del number, envelope
  return (0.01,)


def agree(
  ballot: ballot_lib.Ballot,
  proposals: Mapping[str, str],
  *,
  behaviours: Mapping[str, str] | None = None,
  fate: Fate = steady,
) -> Agreement:
  """Runs one vote to its end.

  Args:
    ballot: Members and time limits of the vote.
    proposals: Statement computed by each member (`statements.state`).
    behaviours: Behaviours of malicious members, from `behaviours.NAMES`; the
      others are honest.
    fate: Delays and losses of messages; by default all take 10 ms.

  Returns:
    The outcome of the honest members. A member that has accepted can prove it
    to one that has skipped, so a value accepted by one honest member is the
    value. With a majority of malicious members, honest members may accept
    different values; then it is the most frequent one.

  Raises:
    ConfigError: If a member has no proposal, or a behaviour is unknown.
  """
  behaviours = behaviours or {}
  for member in ballot.committee:
    if member not in proposals:
      raise errors.ConfigError(
        f'member {member!r} has no proposal; give it one'
      )
  strangers = {*proposals, *behaviours} - {*ballot.committee}
  if strangers:
    raise errors.ConfigError(
      f'{sorted(strangers)} are not in the committee; proposals and behaviours '
      'are for its members alone'
    )
  keys = authentication.simulated_keys(ballot.committee, ballot.seed)
  endpoints = {
    member: endpoint_lib.Endpoint(
      ballot,
      member,
      proposals[member],
      keys[member],
      behaviours.get(member, 'honest'),
    )
    for member in ballot.committee
  }
  num_messages, num_bytes = run(endpoints, fate)
  honest = [
    member
    for member in ballot.committee
    if behaviours.get(member, 'honest') == 'honest'
  ]
  outcomes = {
    m: endpoints[m].member.decided for m in honest or ballot.committee
  }
  result = _result(outcomes)
  return Agreement(
    value=result.statement,
    reason=result.reason,
    num_views=result.view + 1,
    num_messages=num_messages,
    num_bytes=num_bytes,
    num_refused=sum(endpoint.num_refused for endpoint in endpoints.values()),
    seconds=max(outcome.seconds for outcome in outcomes.values()),
    suspects=_suspects(ballot, endpoints),
    outcomes=outcomes,
  )


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


def _result(outcomes: Mapping[str, member_lib.Outcome]) -> member_lib.Outcome:
  """Returns the latest outcome of the most accepted value, or else a skip."""
  accepted = [o.statement for o in outcomes.values() if o.statement is not None]
  counts = collections.Counter(accepted)
  value = max(sorted(counts), key=lambda one: counts[one], default=None)
  return max(
    (o for o in outcomes.values() if o.statement == value), key=lambda o: o.view
  )


def _suspects(
  ballot: ballot_lib.Ballot, endpoints: Mapping[str, endpoint_lib.Endpoint]
) -> frozenset[str]:
  counts = collections.Counter(
    suspect
    for endpoint in endpoints.values()
    for suspect in endpoint.member.suspects
  )
  needed = quorum.tolerated_faults(len(ballot.committee)) + 1
  return frozenset(m for m, count in counts.items() if count >= needed)
