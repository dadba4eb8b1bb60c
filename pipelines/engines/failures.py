"""Carries the failure of a step through any engine to who waits for it.

An engine may hand on an exception as it is, pickled, wrapped in others, or as
the text of a trace. The text survives in all of them, so the failure is
spelled in it.
"""

import base64
import contextlib
import json
import logging
import re
from collections.abc import Generator

from tff_algos.core import errors

# Beam logs the whole trace of whatever a step raises. What is carried is told
# by who waits for it.
_TELLTALES = (
  'apache_beam.runners.common',
  'apache_beam.runners.worker.sdk_worker',
)
_MARK = re.compile(r'\[failure ([A-Za-z0-9+/=]+)\]')
_CARRIED = (errors.UserError, OSError)


class StepError(Exception):
  """What a step of a pipeline raises in place of its own failure."""


@contextlib.contextmanager
def carried() -> Generator[None]:
  """Lets mistakes of the user, and of the disk, pass through any engine.

  Raises:
    StepError: In place of a `UserError` or an `OSError`.
  """
  try:
    yield
  except _CARRIED as error:
    name, words = type(error).__name__, [str(error)]
    if isinstance(error, OSError):
      name, words = OSError.__name__, [error.errno, error.strerror or words[0]]
      if error.filename is not None:
        words.append(str(error.filename))
    spelled = base64.b64encode(json.dumps([name, words]).encode()).decode()
    raise StepError(f'{error} [failure {spelled}]') from error


def find(error: BaseException) -> BaseException | None:
  """Returns the failure that an engine's exception carries, if any.

  Ctrl-C counts as one: Beam wraps it, too.
  """
  found = None
  link: BaseException | None = error
  while link is not None:
    if isinstance(link, (*_CARRIED, KeyboardInterrupt)):
      found = link
    elif found is None:
      found = _spelled_in(str(link))
    link = link.__cause__ or link.__context__
  return found


def _spelled_in(text: str) -> BaseException | None:
  match = _MARK.search(text)
  if match is None:
    return None
  name, words = json.loads(base64.b64decode(match[1]))
  kind = OSError if name == OSError.__name__ else getattr(errors, name)
  return kind(*words)


def _is_news(record: logging.LogRecord) -> bool:
  return _MARK.search(record.getMessage()) is None


for _name in _TELLTALES:
  logging.getLogger(_name).addFilter(_is_news)
