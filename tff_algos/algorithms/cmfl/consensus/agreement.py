"""In-process run of the consensus protocol of a committee.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), Algorithm 2. The result is a
function of ballot, statements, behaviours and network.
"""

import collections
import dataclasses
from collections.abc import Mapping

from tff_algos.algorithms.cmfl.consensus import authentication, in_process
from tff_algos.algorithms.cmfl.consensus import ballot as ballot_lib
from tff_algos.algorithms.cmfl.consensus import endpoint as endpoint_lib
from tff_algos.algorithms.cmfl.consensus import member as member_lib
from tff_algos.core import errors


@dataclasses.dataclass(frozen=True)
class Agreement:
  """How a vote ended.

  Attributes:
    value: The accepted statement; None if the update is skipped.
    reason: Why it is skipped; empty if it is not.
    num_views: Views that were tried, >= 1.
    num_messages: Messages that all members sent, those that were lost included.
    num_bytes: Their size, tags included.
    num_refused: Copies that their receivers refused: forged or malformed.
    seconds: When the last honest member had its outcome, on the virtual clock.
    suspects: Members that asked or voted for something else than the accepted
      statement, in the eyes of at least f + 1 members, so that f malicious
      members together can blame nobody.
    outcomes: What each honest member ended with.
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


def agree(
  ballot: ballot_lib.Ballot,
  proposals: Mapping[str, str],
  *,
  behaviours: Mapping[str, str] | None = None,
  network: in_process.Network | None = None,
) -> Agreement:
  """Runs one vote to its end.

  Args:
    ballot: Who votes, how long.
    proposals: What each member computed, a statement (`statements.state`).
    behaviours: Of malicious members, by `behaviours.NAMES`; the others are
      honest.
    network: What becomes of messages; by default all take 10 ms.

  Returns:
    What the honest members ended with. Who has accepted can prove it to who has
    skipped, so a value that one honest member accepted is the value. With a
    majority of malicious members honest ones may accept different things; then
    it is what most of them accepted.

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
  counts = in_process.run(endpoints, network or in_process.SeededNetwork())
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
    num_messages=counts.num_messages,
    num_bytes=counts.num_bytes,
    num_refused=sum(endpoint.num_refused for endpoint in endpoints.values()),
    seconds=max(outcome.seconds for outcome in outcomes.values()),
    suspects=_suspects(ballot, endpoints),
    outcomes=outcomes,
  )


def _result(outcomes: Mapping[str, member_lib.Outcome]) -> member_lib.Outcome:
  """Returns what most accepted, at its latest; a skip if nobody accepted."""
  accepted = [o for o in outcomes.values() if o.statement is not None]
  if not accepted:
    return max(outcomes.values(), key=lambda outcome: outcome.view)
  counts = collections.Counter(o.statement for o in accepted)
  value = max(sorted(counts), key=lambda statement: counts[statement])  # pyright: ignore[reportArgumentType]
  return max(
    (o for o in accepted if o.statement == value), key=lambda o: o.view
  )


def _suspects(
  ballot: ballot_lib.Ballot, endpoints: Mapping[str, endpoint_lib.Endpoint]
) -> frozenset[str]:
  counts = collections.Counter(
    suspect
    for endpoint in endpoints.values()
    for suspect in endpoint.member.suspects
  )
  needed = ballot.tolerated_faults + 1
  return frozenset(m for m, count in counts.items() if count >= needed)
