"""Source of Shakespeare's plays by role, for next-character prediction.

A client is a role. Its speeches, one after the other, are cut into windows of
80 characters, each labelled by the next character, as LEAF does (Caldas et al.,
arXiv 1812.01097). CMFL's third experiment uses it (Che et al., TPDS).
"""

import dataclasses
import json
import pathlib
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.sources import base, files
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array

JSONL = 'jsonl'
SCRIPT = 'script'
PLAIN = 'plain'
EXACT = 'exact'
# The 80 characters of LEAF's Shakespeare.
ALPHABET = (
  '\n !"&\'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]'
  'abcdefghijklmnopqrstuvwxyz}'
)
_PLAIN_MARKS = str.maketrans(
  {
    **{'‘': "'", '’': "'", '“': '"', '”': '"', '—': '-', '–': '-'},
    **{'…': '...', 'æ': 'ae', 'Æ': 'AE', 'œ': 'oe', 'Œ': 'OE'},
  }
)
_SPEECH = re.compile(r'([^\n:]+):(?:\n(.*))?', re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of Shakespeare.

  Attributes:
    folder: Folder of the file, plain, .gz or .xz.
    file: File name, without the suffix of a compression.
    form: `'jsonl'`: a JSON object with `play`, `role` and `text` in each line,
      one a speech. Or `'script'`: speeches parted by empty lines, the first
      line of each being `ROLE:`.
    window: Number of input characters.
    stride: Characters from one window to the next. Overlapping windows are in
      all splits, so that most text of a test example is in training examples;
      a stride of window + 1 avoids any overlap.
    alphabet: The characters, class 0 first. A window with another one is
      malformed.
    spelling: `'plain'` writes quotation marks, dashes, ligatures and accents
      in ASCII; `'exact'` leaves them.
    test_fraction: Share of each role's text, at its end, that is the official
      test split; 0 for none. Windows across the border are left out.
  """

  folder: str
  file: str
  form: str = JSONL
  window: int = 80
  stride: int = 1
  alphabet: str = ALPHABET
  spelling: str = PLAIN
  test_fraction: float = 0.0

  def __post_init__(self) -> None:
    checks.check_one_of('form', self.form, (JSONL, SCRIPT))
    checks.check_int('window', self.window, minimum=1)
    checks.check_int('stride', self.stride, minimum=1)
    checks.check_one_of('spelling', self.spelling, (PLAIN, EXACT))
    checks.check_below_one('test_fraction', self.test_fraction)
    if len(set(self.alphabet)) < max(2, len(self.alphabet)):
      raise errors.ConfigError(
        'alphabet must be different characters, at least two, got '
        f'{self.alphabet!r}'
      )


class Shakespeare(base.FolderSource):
  """Source of windows of characters, in parts `'train'` and `'test'`.

  The group of an example is its role, and its time the position of its first
  character in the role's text.
  """

  def features(self) -> base.Features:
    """Returns character ids; classes are characters as well."""
    return base.token_features(
      self._options.window, len(self._options.alphabet)
    )

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the windows of a block."""
    roles = self._roles()
    names = list(roles)
    for run in base.runs(self._num_windows(block.part), block):
      whole = roles[names[run.index]]
      text = self._cut(whole, block.part)
      before = len(whole) - len(text) if block.part == 'test' else 0
      ids = self._encode(text)
      for i in range(run.start, run.stop):
        start = i * self._options.stride
        yield self._window(text, ids, start)._replace(
          is_test=block.part == 'test',
          client=names[run.index],
          group=names[run.index],
          time=float(before + start),
        )

  def has_test_split(self) -> bool:
    """Returns whether the end of each role's text is a test split."""
    return self._options.test_fraction > 0

  def facts(self) -> Mapping[str, Any]:
    """Returns the alphabet."""
    return {'alphabet': self._options.alphabet}

  def _sizes(self) -> Mapping[str, int]:
    return {part: sum(self._num_windows(part)) for part in self._parts()}

  def _window(self, text: str, ids: Array, start: int) -> base.RawExample:
    stop = start + self._options.window
    if ids[start : stop + 1].min() < 0:
      strange = set(text[start : stop + 1]) - set(self._options.alphabet)
      return base.malformed(
        'a character is not in the alphabet', value=''.join(sorted(strange))
      )
    return base.RawExample(x=ids[start:stop], y=int(ids[stop]))

  def _encode(self, text: str) -> Array:
    """Returns the position of each character in the alphabet, or -1."""
    places = {char: i for i, char in enumerate(self._options.alphabet)}
    return np.array([places.get(char, -1) for char in text], np.int32)

  def _cut(self, text: str, part: str) -> str:
    border = round(len(text) * (1 - self._options.test_fraction))
    return text[:border] if part == 'train' else text[border:]

  def _num_windows(self, part: str) -> list[int]:
    window, stride = self._options.window, self._options.stride
    return [
      len(range(0, len(self._cut(text, part)) - window, stride))
      for text in self._roles().values()
    ]

  def _roles(self) -> Mapping[str, str]:
    (path,) = self._files()
    options = self._options
    return _read(path, options.form, options.spelling)

  def _files(self) -> list[pathlib.Path]:
    return [files.find(self._options.folder, self._options.file)]


def plain_spelling(text: str) -> str:
  """Returns a text with marks, ligatures and accented letters in ASCII."""
  letters = unicodedata.normalize('NFKD', text.translate(_PLAIN_MARKS))
  return ''.join(char for char in letters if not unicodedata.combining(char))


@files.cached(1)
def _read(path: pathlib.Path, form: str, spelling: str) -> dict[str, str]:
  """Returns role -> its text."""
  text = files.read_text(path)
  parse = _parse_jsonl if form == JSONL else _parse_script
  speeches: dict[str, list[str]] = {}
  for role, speech in parse(text, path):
    speeches.setdefault(role, []).append(speech)
  joined = {role: '\n'.join(parts) for role, parts in speeches.items()}
  if spelling == PLAIN:
    joined = {role: plain_spelling(text) for role, text in joined.items()}
  return joined


def _parse_jsonl(text: str, path: pathlib.Path) -> Iterator[tuple[str, str]]:
  # Texts may have other separators of lines, such as U+2028.
  lines = text.removesuffix('\n').split('\n')
  for number, line in enumerate(lines, start=1):
    try:
      speech = json.loads(line)
      fields = [speech[name] for name in ('play', 'role', 'text')]
    except (ValueError, KeyError, TypeError, RecursionError):
      fields = []
    if not fields or not all(isinstance(field, str) for field in fields):
      raise errors.DataError(
        f'line {number} of {path} is no JSON object with the texts "play", '
        f'"role" and "text": {line[:60]!r}'
      )
    play, role, spoken = fields
    yield f'{play}/{role}', spoken


def _parse_script(text: str, path: pathlib.Path) -> Iterator[tuple[str, str]]:
  lines = text.replace('\r\n', '\n').strip('\n')
  for speech in re.split(r'\n(?:[ \t]*\n)+', lines):
    match = _SPEECH.fullmatch(speech)
    if match is None:
      raise errors.DataError(
        f'{path} has a speech that does not begin with a line "ROLE:": '
        f'{speech[:60]!r}'
      )
    yield match.group(1), match.group(2) or ''
