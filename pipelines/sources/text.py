"""Vocabulary and encoding of words as ids.

Id 0 is padding; then come the words of the vocabulary, most frequent first;
then three more: a word outside the vocabulary, the beginning and the end of a
sequence. TensorFlow Federated numbers Stack Overflow's words in the same way.
"""

import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pipelines.sources import files
from tff_algos.core import errors

PADDING = 0
_NUM_SPECIAL = 4
# Requests to a served model name special ids so.
_MARKS = {'<unknown>', '<begin>', '<end>'}
# Runs of letters, digits and apostrophes, or one mark: LEAF's tokenization.
_WORD = re.compile(r"[\w']+|[.,!?;]")


class Vocabulary(NamedTuple):
  """Words with own ids.

  Attributes:
    words: The words; word i has id i + 1.
    ids: word -> id.
  """

  words: tuple[str, ...]
  ids: dict[str, int]

  @classmethod
  def of(cls, words: Iterable[str]) -> 'Vocabulary':
    """Returns the vocabulary of some different words, in their order."""
    words = tuple(words)
    return cls(words, {word: i + 1 for i, word in enumerate(words)})

  @property
  def unknown(self) -> int:
    """Returns the id of every other word."""
    return len(self.words) + 1

  @property
  def begin(self) -> int:
    """Returns the id of the beginning of a sequence."""
    return len(self.words) + 2

  @property
  def end(self) -> int:
    """Returns the id of the end of a sequence."""
    return len(self.words) + 3

  @property
  def num_ids(self) -> int:
    """Returns the number of ids, including padding and special ids."""
    return len(self.words) + _NUM_SPECIAL

  def encode(self, words: Iterable[str]) -> list[int]:
    """Returns the ids of words."""
    return [self.ids.get(word, self.unknown) for word in words]

  def facts(self) -> dict[str, Any]:
    """Returns the entries of the manifest that serving a model needs."""
    return {
      'vocabulary': list(self.words),
      'special_ids': {
        'padding': PADDING,
        'unknown': self.unknown,
        'begin': self.begin,
        'end': self.end,
      },
    }


def split_words(text: str) -> list[str]:
  """Returns the words and punctuation marks of a text, in lower case."""
  return _WORD.findall(text.lower())


def count_words(texts: Iterable[Sequence[str]], size: int) -> Vocabulary:
  """Returns the `size` most frequent words; of equal ones the first by code."""
  counts = Counter(word for words in texts for word in words)
  ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
  return Vocabulary.of(word for word, _ in ranked[:size])


def read_vocabulary(path: pathlib.Path, size: int) -> Vocabulary:
  """Returns the first `size` words of a file with one word a line.

  Raises:
    DataError: If the file is not text, or has too few words, duplicates, or
      words that stand for special ids.
  """
  words = files.read_text(path).split('\n')[:size]
  words = [word.removesuffix('\r') for word in words]
  if len(words) < size or len(set(words)) < size or '' in words:
    raise errors.DataError(
      f'{path} should begin with {size} lines of one word each, all of them '
      f'different; it has {len(set(words) - {""})}. Mend it, or '
      'vocabulary_size.'
    )
  if marks := sorted(_MARKS.intersection(words)):
    raise errors.DataError(
      f'{path} has {", ".join(marks)} among its first {size} words, which '
      'stand for special ids. Remove them there.'
    )
  return Vocabulary.of(words)


def pad_right(ids: Sequence[int], length: int) -> list[int]:
  """Returns the first `length` ids, padded at the end."""
  return [*ids[:length], *[PADDING] * (length - len(ids))]


def pad_left(ids: Sequence[int], length: int) -> list[int]:
  """Returns the last `length` ids, padded at the beginning."""
  return [*[PADDING] * (length - len(ids)), *ids[-length:]]
