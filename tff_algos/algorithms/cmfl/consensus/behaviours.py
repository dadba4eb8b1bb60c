"""Behaviours of malicious committee members, for simulations and tests.

Each runs the honest state machine and changes its messages. No member has the
keys of others, so it cannot produce valid tags of other members.
"""

from collections.abc import Callable

from tff_algos.algorithms.cmfl.consensus import (
  authentication,
  messages,
  statements,
)
from tff_algos.algorithms.cmfl.consensus import ballot as ballot_lib
from tff_algos.algorithms.cmfl.consensus import member as member_lib
from tff_algos.core import checks

LIE = statements.state(['nobody'], 'a lie')

Sends = list[member_lib.Send]


class Behaviour:
  """An honest member: sends the state machine's messages."""

  def __init__(
    self, ballot: ballot_lib.Ballot, keyring: authentication.Keyring
  ):
    self._ballot = ballot
    self._keyring = keyring

  def claim(self, statement: str) -> str:
    """Returns the statement that the member proposes and votes for."""
    return statement

  def hear(self, message: messages.Message) -> Sends:
    """Returns messages in answer to a message, besides the regular ones."""
    return []

  def say(self, sends: Sends) -> Sends:
    """Returns the messages sent in place of these."""
    return sends


class _Silent(Behaviour):
  """Sends no messages, like a crashed member."""

  def say(self, sends: Sends) -> Sends:
    return []


class _Lying(Behaviour):
  """Proposes and votes for a false statement, common to all lying members."""

  def claim(self, statement: str) -> str:
    return LIE


class _Equivocating(Behaviour):
  """As primary, sends different statements to replicates, half the true one."""

  def say(self, sends: Sends) -> Sends:
    return [
      self._twist(send) if number % 2 else send
      for number, send in enumerate(sends)
    ]

  def _twist(self, send: member_lib.Send) -> member_lib.Send:
    if not isinstance(send.message, messages.Request):
      return send
    twisted = statements.state([send.recipient], 'a lie')
    return send._replace(message=send.message._replace(statement=twisted))


class _Partial(Behaviour):
  """Sends decisions only to the first member, and votes valid for few."""

  def say(self, sends: Sends) -> Sends:
    others = (m for m in self._ballot.committee if m != self._keyring.member_id)
    first = next(others, None)
    return [
      send._replace(message=self._spoil(send))
      for send in sends
      if not isinstance(send.message, messages.Decision)
      or send.recipient == first
    ]

  def _spoil(self, send: member_lib.Send) -> messages.Message:
    """Keeps only the recipient's tag of this member's vote."""
    if not isinstance(send.message, (messages.Reply, messages.ViewChange)):
      return send.message
    vote = send.message.vote
    width = len(vote) // len(self._ballot.committee)
    start = width * self._ballot.committee.index(send.recipient)
    kept = vote[start : start + width].rjust(start + width, '0')
    return send.message._replace(vote=kept.ljust(len(vote), '0'))


class _Garbage(Behaviour):
  """Votes for statements not proposed, and immediately wants the last view."""

  def say(self, sends: Sends) -> Sends:
    garbage = statements.digest('garbage')
    changed = []
    for recipient, message in sends:
      if isinstance(message, messages.Reply):
        message = message._replace(
          digest=garbage, vote=self._keyring.vote(garbage)
        )
      elif isinstance(message, messages.ViewChange):
        message = message._replace(view=10**9)
      elif isinstance(message, messages.Decision):
        message = message._replace(statement='garbage')
      changed.append(member_lib.Send(recipient, message))
    return changed


class _Agreeable(Behaviour):
  """Votes for every requested statement, even for conflicting ones."""

  def hear(self, message: messages.Message) -> Sends:
    me = self._keyring.member_id
    if isinstance(message, messages.Request):
      digest = statements.digest(message.statement)
      vote = self._keyring.vote(digest)
      answer = messages.Reply(me, message.view, digest, vote)
    elif isinstance(message, messages.ViewChange):
      vote = self._keyring.vote(message.digest)
      answer = message._replace(sender=me, vote=vote)
    else:
      return []
    return [member_lib.Send(message.sender, answer)]

  def say(self, sends: Sends) -> Sends:
    return [
      send for send in sends if isinstance(send.message, messages.Request)
    ]


class _Replaying(Behaviour):
  """Replays its earlier messages after each message."""

  def __init__(
    self, ballot: ballot_lib.Ballot, keyring: authentication.Keyring
  ):
    super().__init__(ballot, keyring)
    self._before: Sends = []

  def say(self, sends: Sends) -> Sends:
    if not sends:
      return []
    replayed, self._before = self._before, sends
    return [*sends, *replayed]


class _Forging(Behaviour):
  """Sends every message also in the name of every other member."""

  def say(self, sends: Sends) -> Sends:
    forged = [
      send._replace(message=send.message._replace(sender=other))
      for send in sends
      for other in self._ballot.committee
      if other not in (self._keyring.member_id, send.recipient)
    ]
    return [*sends, *forged]


_BEHAVIOURS: dict[
  str,
  Callable[[ballot_lib.Ballot, authentication.Keyring], Behaviour],
] = {
  'honest': Behaviour,
  'silent': _Silent,
  'lying': _Lying,
  'equivocating': _Equivocating,
  'partial': _Partial,
  'garbage': _Garbage,
  'agreeable': _Agreeable,
  'replaying': _Replaying,
  'forging': _Forging,
}
NAMES = tuple(_BEHAVIOURS)


def build(
  name: str, ballot: ballot_lib.Ballot, keyring: authentication.Keyring
) -> Behaviour:
  """Returns a behaviour by name.

  Raises:
    ConfigError: If the name is unknown.
  """
  checks.check_one_of('behaviour', name, NAMES)
  return _BEHAVIOURS[name](ballot, keyring)
