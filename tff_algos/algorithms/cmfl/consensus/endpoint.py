"""Authenticated endpoint of a committee member: sealed messages in and out.

Interface to a network, in process or of sockets, which calls `start` once,
`deliver` with received messages and `wake` at `wake_time`, and transmits the
returned envelopes.
"""

from typing import NamedTuple

from tff_algos.algorithms.cmfl.consensus import (
  authentication,
  behaviours,
  messages,
)
from tff_algos.algorithms.cmfl.consensus import ballot as ballot_lib
from tff_algos.algorithms.cmfl.consensus import member as member_lib


class Envelope(NamedTuple):
  """A sealed message with its sender and its recipient."""

  sender: str
  recipient: str
  sealed: bytes


class Endpoint:
  """A member with its keys and its behaviour, connected to a network.

  Attributes:
    member_id: One of the committee.
    member: The state machine.
    num_refused: Messages that were malformed, forged or of another vote.
  """

  def __init__(
    self,
    ballot: ballot_lib.Ballot,
    member_id: str,
    statement: str,
    keys: dict[str, bytes],
    behaviour: str = 'honest',
  ):
    """Creates the endpoint of a member.

    Args:
      ballot: Parameters of the vote.
      member_id: Id of a committee member.
      statement: Statement computed by the member; a lying one may replace it.
      keys: Keys shared with the other members.
      behaviour: One of `behaviours.NAMES`.

    Raises:
      ConfigError: If the behaviour is unknown or a key is missing.
    """
    self._keyring = authentication.Keyring(
      member_id, ballot.committee, keys, ballot.instance
    )
    self._behaviour = behaviours.build(behaviour, ballot, self._keyring)
    self._instance = ballot.instance
    self.member_id = member_id
    self.num_refused = 0
    self.member = member_lib.Member(
      ballot, self._behaviour.claim(statement), self._keyring
    )

  @property
  def wake_time(self) -> float | None:
    """Returns when to call `wake`; None if never."""
    return self.member.wake_time

  def start(self, now: float) -> list[Envelope]:
    """Begins the vote; times are seconds on any monotonic clock."""
    return self._seal(self._behaviour.say(self.member.start(now)))

  def deliver(self, now: float, sealed: bytes) -> list[Envelope]:
    """Handles a received message; refuses one without a valid tag."""
    try:
      message = self._keyring.open(sealed)
    except ValueError:
      self.num_refused += 1
      return []
    sends = self._behaviour.say(self.member.receive(now, message))
    return self._seal([*sends, *self._behaviour.hear(message)])

  def wake(self, now: float) -> list[Envelope]:
    """Continues after `wake_time`."""
    return self._seal(self._behaviour.say(self.member.wake(now)))

  def _seal(self, sends: list[member_lib.Send]) -> list[Envelope]:
    envelopes = []
    spelled: tuple[messages.Message | None, bytes] = (None, b'')
    for recipient, message in sends:
      if message is not spelled[0]:  # A broadcast is encoded once.
        spelled = message, messages.encode(self._instance, message)
      sealed = self._keyring.seal(recipient, spelled[1])
      envelopes.append(Envelope(self.member_id, recipient, sealed))
    return envelopes
