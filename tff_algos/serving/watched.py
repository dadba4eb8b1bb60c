"""Files that a running server reads again when they change."""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from absl import logging

from tff_algos.core import errors

_T = TypeVar('_T')
_Identity = tuple[int, int, int] | None


class Watched(Generic[_T]):
  """What files say, as they are now.

  While they are damaged, what they said before holds, and the log has each
  reason once.
  """

  def __init__(
    self,
    what: str,
    paths: Iterable[str | os.PathLike[str]],
    read: Callable[[], _T],
  ):
    """Reads the files.

    Args:
      what: What they hold, for the log.
      paths: The files; a missing one is a change, too.
      read: Returns what they say.

    Raises:
      UserError: If `read` does.
    """
    self._what = what
    self._paths = list(paths)
    self._read = read
    self._lock = threading.Lock()
    self._reason = ''
    self._identities = self._identify()
    self._value = read()

  def current(self) -> _T:
    """Returns what the files say, read again if they have changed."""
    with self._lock:
      identities = self._identify()
      if identities != self._identities:
        try:
          self._value = self._read()
        except (errors.UserError, OSError) as error:
          # Damaged files are read until they can be used.
          if str(error) != self._reason:
            logging.error('The %s before are used on: %s', self._what, error)
          self._reason = str(error)
        else:
          self._identities, self._reason = identities, ''
          logging.info('Read the %s again.', self._what)
      return self._value

  def _identify(self) -> list[_Identity]:
    """Returns what changes if a file does."""
    return [_identity(path) for path in self._paths]


def _identity(path: str | os.PathLike[str]) -> _Identity:
  try:
    found = os.stat(path)
  except OSError:
    return None
  return found.st_mtime_ns, found.st_size, found.st_ino
