"""Messages between committee members, and their encoding in bytes.

Encoded as JSON with sorted keys: malformed messages are refused, and decoding
never executes code.
"""

import json
from typing import Any, NamedTuple


class Request(NamedTuple):
  """Request of the primary of a view to confirm its statement.

  The view replaces the paper's timestamp: a committee votes once per view, and
  clocks may differ.
  """

  sender: str
  view: int
  statement: str


class Reply(NamedTuple):
  """Reply of a replicate that computed the same statement.

  Attributes:
    sender: Id of the replicate.
    view: Of the request.
    digest: Of the statement.
    vote: Tags that prove the vote to every member (`Keyring.vote`).
  """

  sender: str
  view: int
  digest: str
  vote: str


class ViewChange(NamedTuple):
  """Request for a view change, with the sender's own vote."""

  sender: str
  view: int  # The requested view; past the last one, the sender gives up.
  digest: str
  vote: str


class Decision(NamedTuple):
  """Accepted statement, with the votes that prove it."""

  sender: str
  view: int  # The view in which the replies were counted.
  statement: str
  votes: dict[str, str]  # Voter -> vote.


Message = Request | Reply | ViewChange | Decision

_KINDS = {
  kind.__name__: kind for kind in (Request, Reply, ViewChange, Decision)
}


def encode(instance: str, message: Message) -> bytes:
  """Returns a message as bytes.

  Args:
    instance: Name of the vote, such as `'round 7, selection'`, so that messages
      of other votes are refused.
    message: A message of any of the four kinds.
  """
  content = {
    'instance': instance,
    'kind': type(message).__name__,
    **message._asdict(),
  }
  return json.dumps(content, sort_keys=True, separators=(',', ':')).encode()


def decode(instance: str, spelled: bytes) -> Message:
  """Returns the message that `encode` encoded.

  Raises:
    ValueError: If it is no valid message, or a message of another vote.
  """
  try:
    content = json.loads(spelled)
    kind = _KINDS[content.pop('kind')]
    if content.pop('instance') != instance:
      raise ValueError('a message of another vote')
    message = kind(**content)
  except (AttributeError, KeyError, TypeError, RecursionError) as error:
    raise ValueError(f'not a message: {error!r}') from error
  for name, value in message._asdict().items():
    if not _fits(name, value):
      raise ValueError(f'{name} of a {kind.__name__} may not be {value!r:.40}')
  # JSON may contain lone surrogates, which cannot be encoded and so not hashed:
  # this raises UnicodeEncodeError, a ValueError.
  json.dumps(message, ensure_ascii=False).encode()
  return message


def _fits(name: str, value: Any) -> bool:
  if name == 'view':
    return type(value) is int and value >= 0
  if name == 'votes':
    return isinstance(value, dict) and all(
      isinstance(vote, str) for vote in value.values()
    )
  return isinstance(value, str)
