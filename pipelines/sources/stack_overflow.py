"""Source of Stack Overflow by account (TFF), for next-word prediction.

A post is truncated after `length` words, gets a begin token and, if shorter, an
end token, as in TFF's baseline and in PPFL (arXiv 2310.14337). Either a post is
one example: its ids but the last, with its ids but the first as labels, both
padded on the right. Or each of its words but the first is one example: at most
`length` ids before the word, padded on the left, and its id as the label.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.sources import base, cells, client_database, files, text
from tff_algos.core import checks

POSTS = 'posts'
WORDS = 'words'


@dataclasses.dataclass(frozen=True)
class Options(client_database.Options):
  """Options of Stack Overflow: accounts, posts and vocabulary.

  Attributes:
    length: Words per post, and ids per example.
    vocabulary_size: Number of words with an own id.
    vocabulary_file: File in the folder with one word a line, the most
      frequent first.
    examples_are: `'posts'`, with a label at each place, or `'words'`.
    max_posts: Largest number of posts of an account and split; None for all.
  """

  file: str = 'stackoverflow.sqlite'
  length: int = 20
  vocabulary_size: int = 10_000
  vocabulary_file: str = 'vocabulary.txt'
  examples_are: str = WORDS
  max_posts: int | None = None

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_one_of('examples_are', self.examples_are, (POSTS, WORDS))
    checks.check_int('length', self.length, minimum=1)
    checks.check_int('vocabulary_size', self.vocabulary_size, minimum=1)
    if self.max_posts is not None:
      checks.check_int('max_posts', self.max_posts, minimum=1)


class StackOverflow(client_database.ClientDatabase):
  """Source of word ids, labelled by the next word or words.

  The group of an example is its post, and its time that of the post.
  Metrics of words only ignore the labels `special_ids` in the facts.
  """

  def features(self) -> base.Features:
    """Returns word ids; classes are ids as well."""
    length, num_ids = self._options.length, self._vocabulary().num_ids
    features = base.token_features(length, num_ids)
    if self._options.examples_are == POSTS:
      return features._replace(y_shape=(length,))
    return features

  def parts_groups(self) -> bool:
    """Returns whether each word of a post is an example."""
    return self._options.examples_are == WORDS

  def facts(self) -> Mapping[str, Any]:
    """Returns the vocabulary."""
    return self._vocabulary().facts()

  def _client_sizes(self, split: str) -> dict[str, int]:
    sizes = super()._client_sizes(split)
    most = self._options.max_posts
    if most is None:
      return sizes
    return {client: min(size, most) for client, size in sizes.items()}

  def _examples(self, features: Mapping[str, Any]) -> Iterator[base.RawExample]:
    tokens = features['tokens'].bytes_list.value
    try:
      (post,) = (value.decode() for value in tokens)
    except UnicodeDecodeError:
      yield base.malformed('the post is not UTF-8 text')
      return
    except ValueError:
      yield base.malformed(f'the record has {len(tokens)} texts, not 1')
      return
    date = b''.join(features['creation_date'].bytes_list.value)
    time = cells.parse_time(date.decode(errors='replace').removesuffix(' UTC'))
    vocabulary, length = self._vocabulary(), self._options.length
    words = post.split(' ')[:length] if post else []
    ids = [vocabulary.begin, *vocabulary.encode(words)]
    if len(words) < length:
      ids.append(vocabulary.end)
    if self._options.examples_are == POSTS:
      examples = [
        (text.pad_right(ids[:-1], length), text.pad_right(ids[1:], length))
      ]
    else:
      examples = [
        (text.pad_left(ids[:i], length), ids[i]) for i in range(1, len(ids))
      ]
    for x, y in examples:
      yield base.RawExample(x=x, y=y, group=f'post {post}', time=time)

  def _vocabulary(self) -> text.Vocabulary:
    return _read_vocabulary(
      self._vocabulary_path(), self._options.vocabulary_size
    )

  def _vocabulary_path(self) -> pathlib.Path:
    return files.find(self._options.folder, self._options.vocabulary_file)

  def _files(self) -> list[pathlib.Path]:
    return [*super()._files(), self._vocabulary_path()]


_read_vocabulary = files.cached(1)(text.read_vocabulary)
