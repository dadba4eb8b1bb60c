"""Messages between committee members, and their encoding in bytes.

Encoded as JSON with sorted keys: malformed messages are refused, and decoding
never executes code.
"""

import json
from typing import Any, NamedTuple


class Request(NamedTuple):
  """The primary of a view asks whether its statement is right.

  The view takes the place of the paper's timestamp: a committee votes once a
  view, and clocks may differ.
  """

  sender: str
  view: int
  statement: str


class Reply(NamedTuple):
  """A replicate says that it came to the same statement.

  Attributes:
    sender: Its id.
    view: Of the request.
    digest: Of the statement.
    vote: Tags that prove the vote to every member (`Keyring.vote`).
  """

  sender: str
  view: int
  digest: str
  vote: str


class ViewChange(NamedTuple):
  """A member wants another primary; carries what itself would vote for."""

  sender: str
  view: int  # The view that it wants; past the last one it gives up.
  digest: str
  vote: str


class Decision(NamedTuple):
  """A member has accepted a statement; the votes prove it."""

  sender: str
  view: int  # In which the replies were counted.
  statement: str
  votes: dict[str, str]  # Voter -> vote.


Message = Request | Reply | ViewChange | Decision

_KINDS = {
  kind.__name__: kind for kind in (Request, Reply, ViewChange, Decision)
}


def encode(instance: str, message: Message) -> bytes:
  """Returns a message in bytes.

  Args:
    instance: Names the vote, such as `'round 7, selection'`, so that no message
      of another one counts.
    message: Any of the four.
  """
  content = {
    'instance': instance,
    'kind': type(message).__name__,
    **message._asdict(),
  }
  return json.dumps(content, sort_keys=True, separators=(',', ':')).encode()


def decode(instance: str, spelled: bytes) -> Message:
  """Returns the message that `encode` spelled.

  Raises:
    ValueError: If it is not such a message, or one of another instance.
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
  # JSON can spell half a character, which nobody could hash: a ValueError, too.
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
