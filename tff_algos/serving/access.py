"""Bearer tokens: who may ask the server, and for which client."""

import functools
import hashlib
import json
import os
import pathlib
from typing import Any, NamedTuple

from tff_algos.core import errors
from tff_algos.serving import watched

_SCHEME = 'bearer '


class Caller(NamedTuple):
  """Who asks.

  Attributes:
    name: Name of the token; '' where the server needs none.
    client_id: The only client whose personalized model the token may ask for;
      None for any.
    origin: Name of the client's certificate, or else its address.
  """

  name: str = ''
  client_id: str | None = None
  origin: str = ''

  @property
  def key(self) -> str:
    """Returns what tells clients apart, as far as it is known."""
    return self.client_id or self.name or self.origin


class Tokens:
  """Tokens of a file, which is read again when it changes.

  The file is a JSON object, name -> {"sha256": ..., "client_id": ...}: the hash
  of the token in hex digits, and optionally the client that it is for.
  """

  def __init__(self, path: str | os.PathLike[str] | None):
    """Reads the file; without one every request is allowed.

    Raises:
      UserError: If it cannot be read.
    """
    self._callers: watched.Watched[dict[str, Caller]] | None = None
    if path:
      self._callers = watched.Watched(
        'tokens', [path], functools.partial(_read, pathlib.Path(path))
      )

  def caller(self, authorization: str | None, origin: str = '') -> Caller:
    """Returns who asks.

    Args:
      authorization: Value of the header `Authorization`, `Bearer <token>`.
      origin: As of `Caller`.

    Raises:
      RequestError: (401) If the token is missing or unknown.
    """
    if self._callers is None:
      return Caller(origin=origin)
    given = authorization or ''
    if given[: len(_SCHEME)].lower() == _SCHEME:
      token = given[len(_SCHEME) :].strip().encode()
      digest = hashlib.sha256(token).hexdigest()
      found = self._callers.current().get(digest)
      if found is not None:
        return found._replace(origin=origin)
    raise errors.RequestError(
      'a valid token is needed: Authorization: Bearer <token>', status=401
    )


def _read(path: pathlib.Path) -> dict[str, Caller]:
  """Returns hash of the token -> who asks."""
  try:
    entries = json.loads(path.read_text())
    found = dict(_entry(name, value) for name, value in entries.items())
    if len(found) < len(entries):
      raise ValueError('two names have one sha256')
    return found
  except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
    raise errors.UserError(
      f'token file {path} cannot be read: {error}. It must be a JSON object, '
      'name -> {"sha256": <64 hex digits>, "client_id": <optional>}.'
    ) from error


def _entry(name: str, value: dict[str, Any]) -> tuple[str, Caller]:
  digest, client_id = value['sha256'], value.get('client_id')
  if set(value) - {'sha256', 'client_id'}:
    raise ValueError(f'unknown entries of {name!r}')
  if bytes.fromhex(digest).hex() != digest.lower() or len(digest) != 64:
    raise ValueError(f'sha256 of {name!r} must have 64 hex digits')
  if digest.lower() == hashlib.sha256().hexdigest():
    raise ValueError(f'sha256 of {name!r} is that of an empty token')
  if client_id is not None and not isinstance(client_id, str):
    raise TypeError(f'client_id of {name!r} must be a string')
  return digest.lower(), Caller(name, client_id)
