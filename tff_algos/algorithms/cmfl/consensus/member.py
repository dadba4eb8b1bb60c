"""State machine of a voting committee member, without a network.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), section 4.2.4 and Algorithm 2:

  primary    sends Request(statement) to all replicates
  replicate  sends Reply to the primary if it computed the same statement
  primary    accepts at floor(C / 2) + 1 replies and sends Decision to all
  otherwise  another primary is drawn, and the protocol is repeated

The paper does not specify how members leave a view. Here, as in PBFT, a member
that times out or receives a request for another statement sends ViewChange to
all, and a majority of these begins the next view. Nor does it specify the
acceptance rule of a replicate: an honest one replies only to the statement that
it computed itself, and accepts a statement that enough votes prove.

Inputs are times and messages, outputs are messages; this code does no I/O.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from tff_algos.algorithms.cmfl.consensus import (
  authentication,
  messages,
  quorum,
  statements,
)
from tff_algos.algorithms.cmfl.consensus import ballot as ballot_lib

VIEWS = 'the upper bound on views was reached'
SILENCE = 'too few members answered'


class Outcome(NamedTuple):
  """Outcome of a vote at a member.

  Attributes:
    statement: The accepted statement; None if the update is skipped.
    view: The view of the decision, or the last view; from 0.
    reason: Reason for skipping; empty for an accepted statement.
    seconds: Time of the outcome, on the caller's clock.
  """

  statement: str | None
  view: int
  reason: str
  seconds: float


class Send(NamedTuple):
  """A message to send."""

  recipient: str
  message: messages.Message


class Member:
  """A member's part in one vote: primary in its views, replicate in others.

  Attributes:
    ballot: Parameters of the vote.
    statement: Statement computed by the member itself.
    outcome: None while undecided. A skip is the lack of a decision, and is
      replaced by a later decision. An accepted statement is final.
    wake_time: Time at which to call `wake`, on the caller's clock; None without
      a pending timeout.
  """

  def __init__(
    self,
    ballot: ballot_lib.Ballot,
    statement: str,
    keyring: authentication.Keyring,
  ):
    self.ballot = ballot
    self.statement = statement
    self.outcome: Outcome | None = None
    self.wake_time: float | None = None
    self._me = keyring.member_id
    self._keyring = keyring
    self._size = len(ballot.committee)
    self._others = tuple(m for m in ballot.committee if m != self._me)
    self._digest = statements.digest(statement)
    self._vote = keyring.vote(self._digest)
    self._view = 0
    self._now = 0.0
    self._num_waits = 0
    self._num_answered = 0  # Views up to this member's last reply or refusal.
    self._replied: set[str] = set()  # To this member's request in this view.
    self._requests: dict[int, messages.Request] = {}
    # Wanted view by member; votes by statement; statements by member.
    self._wanted = dict.fromkeys(ballot.committee, 0)
    self._votes: dict[str, dict[str, str]] = defaultdict(dict)
    self._said: dict[str, set[str]] = defaultdict(set)
    self._votes[self._digest][self._me] = self._vote

  @property
  def suspects(self) -> frozenset[str]:
    """Returns members that requested or voted for another statement."""
    if self.outcome is None or self.outcome.statement is None:
      return frozenset()
    accepted = {statements.digest(self.outcome.statement)}
    return frozenset(m for m, said in self._said.items() if said - accepted)

  def start(self, now: float) -> list[Send]:
    """Begins view 0."""
    self._now = now
    return self._enter(0)

  def receive(self, now: float, message: messages.Message) -> list[Send]:
    """Handles a message with an authenticated sender (`Keyring.open`)."""
    self._now = now
    handlers: dict[type, Callable[..., list[Send]]] = {
      messages.Request: self._on_request,
      messages.Reply: self._on_reply,
      messages.ViewChange: self._on_view_change,
      messages.Decision: self._on_decision,
    }
    return handlers[type(message)](message)

  def wake(self, now: float) -> list[Send]:
    """Handles the timeout of this view; call it at `wake_time` or later."""
    self._now = now
    self._num_waits += 1
    if self._num_waits > 2 * self.ballot.limits.max_views:
      # Not even a view change finds a majority.
      return self._give_up(SILENCE)
    self._set_timer()
    return self._want(self._view + 1)

  def _enter(self, view: int) -> list[Send]:
    """Begins a view, as its primary or as a replicate."""
    self._view = view
    self._replied = set()
    if view >= self.ballot.limits.max_views:
      return self._give_up(VIEWS)
    if not self._has_accepted:
      self._set_timer()
    if self.ballot.primary(view) == self._me:
      if self._has_accepted:
        return self._broadcast(self._proof())
      return [
        *self._broadcast(messages.Request(self._me, view, self.statement)),
        *self._count_replies(),
      ]
    return self._answer_request()

  def _on_request(self, request: messages.Request) -> list[Send]:
    self._said[request.sender].add(statements.digest(request.statement))
    if request.sender == self.ballot.primary(request.view):
      # Others may enter a view earlier. Repeated requests, perhaps with another
      # statement, get no reply.
      begin = max(self._view, self._num_answered)
      if begin <= request.view < self.ballot.limits.max_views:
        self._requests.setdefault(request.view, request)
        return self._answer_request()
    return []

  def _answer_request(self) -> list[Send]:
    """Replies once to the request of this view, if it has arrived."""
    request = self._requests.pop(self._view, None)
    if request is None:
      return []
    self._num_answered = self._view + 1
    if request.statement != self.statement:
      return [] if self._has_accepted else self._want(self._view + 1)
    reply = messages.Reply(self._me, self._view, self._digest, self._vote)
    return [Send(request.sender, reply)]

  def _on_reply(self, reply: messages.Reply) -> list[Send]:
    is_vote = self._count_vote(reply.sender, reply.digest, reply.vote)
    if is_vote and reply.digest == self._digest and reply.view == self._view:
      self._replied.add(reply.sender)
      return self._count_replies()
    return []

  def _count_replies(self) -> list[Send]:
    """Accepts this member's statement once enough replicates have replied."""
    is_ours = self.ballot.primary(self._view) == self._me
    enough = len(self._replied) >= quorum.required_replies(self._size)
    if not is_ours or not enough or self._has_accepted:
      return []
    return self._accept(self.statement, self._view)

  def _on_view_change(self, change: messages.ViewChange) -> list[Send]:
    self._count_vote(change.sender, change.digest, change.vote)
    wanted = min(change.view, self.ballot.limits.max_views)
    self._wanted[change.sender] = max(self._wanted[change.sender], wanted)
    sends = []
    if self._has_accepted:
      sends.append(Send(change.sender, self._proof()))
    elif wanted < self._view:
      # The sender has missed a view change: repeat this member's.
      sends.append(Send(change.sender, self._change()))
    return sends + self._advance()

  def _want(self, view: int) -> list[Send]:
    """Requests a view change, or repeats the request."""
    self._wanted[self._me] = max(self._wanted[self._me], view)
    return [*self._broadcast(self._change()), *self._advance()]

  def _advance(self) -> list[Send]:
    """Joins a view change of f + 1 others, and enters it with a majority."""
    ranked = sorted(self._wanted.values(), reverse=True)
    others = sorted(
      (self._wanted[other] for other in self._others), reverse=True
    )
    num_faults = quorum.tolerated_faults(self._size)
    # Of f + 1 others, at least one is honest and has timed out.
    joined = others[num_faults] if num_faults < len(others) else 0
    if joined > max(self._wanted[self._me], self._view):
      return self._want(joined)
    supported = ranked[quorum.majority(self._size) - 1]
    return self._enter(supported) if supported > self._view else []

  def _on_decision(self, decision: messages.Decision) -> list[Send]:
    # Votes do not contain a view: it is known only from the sender.
    is_possible = decision.view < self.ballot.limits.max_views
    if self._has_accepted or not is_possible:
      return []
    digest = statements.digest(decision.statement)
    for voter, vote in decision.votes.items():
      self._count_vote(voter, digest, vote)
    if len(self._votes[digest]) < quorum.required_votes(self._size):
      return []
    return self._accept(decision.statement, decision.view)

  def _accept(self, statement: str, view: int) -> list[Send]:
    self.outcome = Outcome(statement, view, '', self._now)
    self.wake_time = None
    if self.ballot.primary(view) == self._me:
      return self._broadcast(self._proof())
    # The primary may not have sent the decision to all; these members have
    # requested a later view, so they have not received it.
    waiting = [m for m in self._others if self._wanted[m] > view]
    return [Send(member, self._proof()) for member in waiting]

  def _give_up(self, reason: str) -> list[Send]:
    if not self._has_accepted and self.outcome is None:
      last = min(self._view, self.ballot.limits.max_views - 1)
      self.outcome = Outcome(None, last, reason, self._now)
    self.wake_time = None
    return []

  def _count_vote(self, voter: str, digest: str, vote: str) -> bool:
    """Keeps a vote if its tag for this member is valid."""
    if self._votes[digest].get(voter) == vote:
      return True
    is_vote = self._keyring.is_vote(voter, digest, vote)
    if is_vote:
      self._votes[digest][voter] = vote
      self._said[voter].add(digest)
    return is_vote

  @property
  def decided(self) -> Outcome:
    """The outcome of a member that is no longer undecided."""
    if self.outcome is None:
      raise RuntimeError(f'member {self._me} is undecided')
    return self.outcome

  @property
  def _has_accepted(self) -> bool:
    return self.outcome is not None and self.outcome.statement is not None

  def _proof(self) -> messages.Decision:
    statement, view = self.decided.statement, self.decided.view
    votes = self._votes[statements.digest(statement)]  # pyright: ignore[reportArgumentType]
    return messages.Decision(self._me, view, statement, dict(votes))  # pyright: ignore[reportArgumentType]

  def _change(self) -> messages.ViewChange:
    wanted = self._wanted[self._me]
    return messages.ViewChange(self._me, wanted, self._digest, self._vote)

  def _broadcast(self, message: messages.Message) -> list[Send]:
    return [Send(other, message) for other in self._others]

  def _set_timer(self) -> None:
    seconds = self.ballot.limits.timeout_seconds * (self._view + 1)
    self.wake_time = self._now + seconds
