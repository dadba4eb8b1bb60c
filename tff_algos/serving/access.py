"""Bearer tokens: who may ask the server, and for which client."""

import hashlib
import json
import os
import pathlib
from typing import Any, NamedTuple

from absl import logging

from tff_algos.core import errors

_SCHEME = 'bearer '


class Caller(NamedTuple):
  """Who asks.

  Attributes:
    name: Name of the token; '' where the server needs none.
    client_id: The only client whose personalized model the token may ask for;
      None for any.
  """

  name: str = ''
  client_id: str | None = None


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
    self._path = pathlib.Path(path) if path else None
    self._changed_at = self._mtime()
    self._callers = self._read()

  def caller(self, authorization: str | None) -> Caller:
    """Returns who asks.

    Args:
      authorization: Value of the header `Authorization`, `Bearer <token>`.

    Raises:
      RequestError: (401) If the token is missing or unknown.
    """
    if self._path is None:
      return Caller()
    self._read_again()
    given = authorization or ''
    if given[: len(_SCHEME)].lower() == _SCHEME:
      token = given[len(_SCHEME) :].strip().encode()
      found = self._callers.get(hashlib.sha256(token).hexdigest())
      if found is not None:
        return found
    raise errors.RequestError(
      'a valid token is needed: Authorization: Bearer <token>', status=401
    )

  def _read_again(self) -> None:
    try:
      changed_at = self._mtime()
      if changed_at != self._changed_at:
        self._changed_at = changed_at
        self._callers = self._read()
        logging.info('Read the tokens of %s again.', self._path)
    except errors.UserError as error:
      logging.log_every_n_seconds(
        logging.ERROR, 'The tokens before are used on: %s', 60, error
      )

  def _mtime(self) -> int:
    if self._path is None:
      return 0
    try:
      return self._path.stat().st_mtime_ns
    except OSError as error:
      raise self._error(error.strerror or '') from error

  def _read(self) -> dict[str, Caller]:
    if self._path is None:
      return {}
    try:
      entries = json.loads(self._path.read_text())
      return dict(_entry(name, value) for name, value in entries.items())
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
      raise self._error(str(error)) from error

  def _error(self, reason: str) -> errors.UserError:
    return errors.UserError(
      f'token file {self._path} cannot be read: {reason}. It must be a JSON '
      'object, name -> {"sha256": <64 hex digits>, "client_id": <optional>}.'
    )


def _entry(name: str, value: dict[str, Any]) -> tuple[str, Caller]:
  digest, client_id = value['sha256'], value.get('client_id')
  if set(value) - {'sha256', 'client_id'}:
    raise ValueError(f'unknown entries of {name!r}')
  if len(bytes.fromhex(digest)) != hashlib.sha256().digest_size:
    raise ValueError(f'sha256 of {name!r} must have 64 hex digits')
  if client_id is not None and not isinstance(client_id, str):
    raise TypeError(f'client_id of {name!r} must be a string')
  return digest.lower(), Caller(name, client_id)
