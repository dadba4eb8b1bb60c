"""Fixed word embeddings, one per token, from a file or random.

They are constants, not weights: not trained, sent, averaged, counted, or part
of distances between models.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tff_algos.core import errors, seeds

# Word by id; None for ids that are not words, such as padding.
WordIds = Sequence[str | None]


def word_ids(
  vocabulary: Sequence[str], special_ids: Mapping[str, int]
) -> WordIds:
  """Returns the word of each id.

  Args:
    vocabulary: Words in the order of their ids.
    special_ids: Ids that are not words, by name; words have all other ids.
  """
  special = set(special_ids.values())
  words = iter(vocabulary)
  return tuple(
    None if i in special else next(words)
    for i in range(len(vocabulary) + len(special))
  )


def draw(words: WordIds, size: int, seed: int) -> np.ndarray:
  """Returns a standard normal vector for every word, and zeros for other ids.

  A word's vector depends only on the word, `size` and `seed`, not on the rest
  of the vocabulary.

  Args:
    words: By id.
    size: Of a vector.
    seed: Any integer >= 0.

  Returns:
    float32 `[ids, size]`.
  """
  table = np.zeros([len(words), size], np.float32)
  for i, word in enumerate(words):
    if word is not None:
      generator = seeds.numpy_generator(seed, f'embedding/{word}')
      table[i] = generator.standard_normal(size)
  return table


def read(path: str, words: WordIds, size: int) -> np.ndarray:
  """Returns the vectors of words from a file in GloVe's format.

  Every line is a word and its numbers, separated by spaces, in UTF-8
  (Pennington, Socher and Manning 2014). Words that are not in the file get
  zeros, and so do ids that are not words.

  Args:
    path: The file, not compressed.
    words: By id.
    size: Of a vector.

  Returns:
    float32 `[ids, size]`.

  Raises:
    ConfigError: If the file cannot be read, a vector has another size or is not
      of finite numbers, or the file has none of the words.
  """
  ids = {word: i for i, word in enumerate(words) if word is not None}
  table = np.zeros([len(words), size], np.float32)
  found = set()
  for place, word, numbers in _lines(path, ids, size):
    # Of repeated words, the first vector is used.
    if word in ids and word not in found:
      found.add(word)
      table[ids[word]] = _vector(numbers, place)
  if not found:
    raise errors.ConfigError(
      f'embeddings_file {path} has none of the {len(ids)} words of the data '
      "set's vocabulary: take a file of the same language, in lower case"
    )
  return table


def _lines(path, ids, size) -> Iterator[tuple[str, str, list[str]]]:
  """Yields place, word and numbers of the first line and all known words."""
  try:
    with open(path, encoding='utf-8') as file:
      for number, line in enumerate(file, start=1):
        # Most words are unknown, and splitting their numbers takes long.
        if number > 1 and line.partition(' ')[0] not in ids:
          continue
        place = f'line {number} of embeddings_file {path}'
        # From the right, as some files have words with spaces inside.
        word, *numbers = line.rstrip(' \r\n').rsplit(' ', size)
        if len(numbers) != size or (number == 1 and ' ' in word):
          raise errors.ConfigError(
            f'embedding_size is {size}, but {place} has '
            f'{len(line.split()) - 1} numbers: {line[:60]!r}'
          )
        yield place, word, numbers
  except (OSError, UnicodeDecodeError) as error:
    raise errors.ConfigError(
      f'embeddings_file {path} cannot be read as UTF-8 text: {error}'
    ) from None


def _vector(numbers: list[str], place: str) -> np.ndarray:
  try:
    vector = np.array(numbers, np.float32)
  except ValueError:
    vector = None
  if vector is None or not np.isfinite(vector).all():
    raise errors.ConfigError(
      f'{place} must have finite numbers, got {numbers[:5]}'
    )
  return vector
