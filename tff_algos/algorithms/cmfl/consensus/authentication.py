"""Message authentication: tags on messages and votes of committee members.

Every two members share a key. A message carries one tag, for its receiver. A
vote carries one tag for every member, so that its receiver can forward it to
the others, and each checks its own tag (authenticators of PBFT, Castro and
Liskov 1999).

A malicious voter may send valid tags for some members and invalid tags for
others: then only the former count its vote.
"""

import hmac
import itertools
from collections.abc import Callable, Mapping, Sequence

from tff_algos.algorithms.cmfl.consensus import messages
from tff_algos.core import errors, seeds

# HMAC-SHA-256, truncated to its first half as in RFC 4868.
_TAG_BYTES = 16
_KEY_BYTES = 32


def deal_keys(
  committee: Sequence[str], new_key: Callable[[], bytes]
) -> dict[str, dict[str, bytes]]:
  """Returns pairwise keys: member -> other member -> shared key.

  Args:
    committee: Distinct ids.
    new_key: Returns 32 new secret bytes at each call, such as
      `lambda: secrets.token_bytes(32)`.
  """
  keys: dict[str, dict[str, bytes]] = {member: {} for member in committee}
  for one, other in itertools.combinations(committee, 2):
    keys[one][other] = keys[other][one] = new_key()
  return keys


def simulated_keys(
  committee: Sequence[str], seed: int
) -> dict[str, dict[str, bytes]]:
  """Returns keys derived from a seed: for simulation only, not secret."""
  generator = seeds.numpy_generator(seed, 'consensus_keys')
  return deal_keys(committee, lambda: generator.bytes(_KEY_BYTES))


class Keyring:
  """Keys of one member in one vote, to authenticate messages and votes.

  Attributes:
    member_id: Id of the member.
  """

  def __init__(
    self,
    member_id: str,
    committee: Sequence[str],
    keys: Mapping[str, bytes],
    instance: str,
  ):
    """Takes a member's keys.

    Args:
      member_id: One of the committee.
      committee: All members, in the same order at every member.
      keys: 32 bytes for every other member; those of further ids are ignored.
      instance: Name of the vote.

    Raises:
      ConfigError: If a key is missing or too short.
    """
    for other in committee:
      if other != member_id and len(keys.get(other, b'')) < _KEY_BYTES:
        raise errors.ConfigError(
          f'{member_id!r} needs a key of {_KEY_BYTES} bytes for {other!r}, got '
          f'{len(keys.get(other, b""))}; see deal_keys'
        )
    self.member_id = member_id
    self._committee = tuple(committee)
    # A key is what makes its owner count: keys may be dealt to more clients.
    self._keys = {one: keys[one] for one in committee if one != member_id}
    self._instance = instance

  def seal(self, recipient: str, spelled: bytes) -> bytes:
    """Returns the bytes of a message with the tag for its receiver."""
    return self._tag(recipient, spelled) + spelled

  def open(self, sealed: bytes) -> messages.Message:
    """Returns the message that another member sealed for this one.

    Raises:
      ValueError: If it is malformed, of another vote, or its tag is not the
        sender's.
    """
    tag, spelled = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
    message = messages.decode(self._instance, spelled)
    if message.sender not in self._keys:
      raise ValueError(f'sender {message.sender!r} is no other member')
    if not hmac.compare_digest(tag, self._tag(message.sender, spelled)):
      raise ValueError(f'the tag is not that of sender {message.sender!r}')
    return message

  def vote(self, digest: str) -> str:
    """Returns this member's vote for a statement: a hex tag for each member."""
    content = self._vote_content(self.member_id, digest)
    return ''.join(
      '00' * _TAG_BYTES
      if other == self.member_id
      else self._tag(other, content).hex()
      for other in self._committee
    )

  def is_vote(self, voter: str, digest: str, vote: str) -> bool:
    """Returns whether this member's tag in another member's vote is valid."""
    if voter not in self._keys:
      return False
    start = 2 * _TAG_BYTES * self._committee.index(self.member_id)
    expected = self._tag(voter, self._vote_content(voter, digest)).hex()
    ours = vote[start : start + 2 * _TAG_BYTES]
    return hmac.compare_digest(ours.encode(), expected.encode())

  def _tag(self, other: str, content: bytes) -> bytes:
    return hmac.digest(self._keys[other], content, 'sha256')[:_TAG_BYTES]

  def _vote_content(self, voter: str, digest: str) -> bytes:
    # No message begins with 'vote', so tags of votes and messages cannot be
    # exchanged.
    return '\0'.join(('vote', self._instance, voter, digest)).encode()
