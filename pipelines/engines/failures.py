"""Propagation of errors of pipeline steps through any Beam runner.

A runner may pass an exception on unchanged, pickled, wrapped in others, or as
the text of a stack trace. The text survives in all cases, so the error is
serialized into it.
"""

import base64
import contextlib
import json
import logging
import re
from collections.abc import Generator

from tff_algos.core import errors

# Beam logs the stack trace of every error of a step. Propagated errors are
# reported by the caller of the pipeline instead.
_TELLTALES = (
  'apache_beam.runners.common',
  'apache_beam.runners.worker.sdk_worker',
)
_MARK = re.compile(r'\[failure ([A-Za-z0-9+/=]+)\]')
_CARRIED = (errors.UserError, OSError)


class StepError(Exception):
  """Error of a step, with the original error serialized in its text."""


@contextlib.contextmanager
def carried() -> Generator[None]:
  """Propagates user errors and disk errors of a step through any runner.

  Raises:
    StepError: In place of a `UserError` or an `OSError`.
  """
  try:
    yield
  except _CARRIED as error:
    name, words = _name_kind(error), [str(error)]
    if isinstance(error, OSError):
      words = [error.errno, error.strerror or words[0]]
      if error.filename is not None:
        words.append(str(error.filename))
    spelled = base64.b64encode(json.dumps([name, words]).encode()).decode()
    raise StepError(f'{error} [failure {spelled}]') from error


def find(error: BaseException) -> BaseException | None:
  """Returns the error serialized in a runner's exception, if any.

  This includes Ctrl-C and errors of the disk, which Beam wraps as well.
  """
  found = None
  link: BaseException | None = error
  while link is not None:
    is_user = isinstance(link, (errors.UserError, KeyboardInterrupt))
    if is_user or errors.is_of_disk(link):
      found = link
    elif found is None:
      found = _spelled_in(str(link))
    link = link.__cause__ or link.__context__
  return found


def _name_kind(error: BaseException) -> str:
  """Returns the name of the first class of an error that `errors` has."""
  if isinstance(error, OSError):
    return OSError.__name__
  names = (kind.__name__ for kind in type(error).__mro__)
  return next(name for name in names if hasattr(errors, name))


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
