"""Says in one line what is wrong with the flags or the config file."""

import re

from absl import flags

# What a ConfigDict says, in one or two pairs of quotes.
_UNKNOWN_KEY = re.compile(r'[\'" ]*(\w+)[\'" ]*(Did you mean .*\?)?[\'" ]*')


def words_of(error: Exception) -> str:
  """Returns in one line what is wrong with the flags.

  Raises:
    Exception: `error`, if the config file itself is at fault, for its trace.
  """
  text = str(error.args[0] if error.args else error)
  if 'Traceback' in text:
    flag, *_, last = text.strip().splitlines()
    kind, _, words = last.partition(': ')
    if kind != ValueError.__name__:
      raise error
    return f'{flag.partition(": ")[0]}: {words}'
  if isinstance(error, OSError):
    text = str(error.__cause__ or error)
  words = ' '.join(text.replace('\\n', ' ').replace('\\', '').split())
  if isinstance(error, flags.Error):
    return words
  unknown = _UNKNOWN_KEY.fullmatch(words)
  if unknown:
    return f'--config has no key {unknown[1]!r}. {unknown[2] or ""}'.strip()
  return f'--config: {words}'
