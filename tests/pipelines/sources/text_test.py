import pytest

from pipelines.sources import text
from tff_algos.core import errors


def test_ids():
  """Ids as in TFF's Stack Overflow: 0, words from 1, then three more."""
  vocabulary = text.Vocabulary.of(['the', 'cat'])
  assert vocabulary.encode(['cat', 'dog', 'the']) == [2, 3, 1]
  assert (vocabulary.unknown, vocabulary.begin, vocabulary.end) == (3, 4, 5)
  assert vocabulary.num_ids == 6
  assert vocabulary.facts() == {
    'vocabulary': ['the', 'cat'],
    'special_ids': {'padding': 0, 'unknown': 3, 'begin': 4, 'end': 5},
  }


def test_split_words():
  assert text.split_words("It's FINE, no? (é)") == [
    *("it's", 'fine', ',', 'no', '?', 'é'),
  ]
  assert text.split_words('') == []


@pytest.mark.parametrize(
  ('size', 'words'), [(1, ('b',)), (2, ('b', 'a')), (9, ('b', 'a', 'c'))]
)
def test_count_words_breaks_ties_by_code(size, words):
  assert text.count_words([['c', 'b'], ['a', 'b']], size).words == words


def test_read_vocabulary(tmp_path):
  path = tmp_path / 'words'
  path.write_bytes('the\r\nécu\nthe'.encode())
  assert text.read_vocabulary(path, 2).words == ('the', 'écu')


@pytest.mark.parametrize('content', [b'', b'the\n', b'the\nthe\n', b'the\n\na'])
def test_vocabulary_that_is_too_small(tmp_path, content):
  path = tmp_path / 'words'
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match='2 lines of one word each'):
    text.read_vocabulary(path, 2)


def test_a_word_that_stands_for_a_special_id(tmp_path):
  path = tmp_path / 'words'
  path.write_text('the\n<unknown>\n<end>\na')
  with pytest.raises(errors.DataError, match='has <end>, <unknown> among its'):
    text.read_vocabulary(path, 4)
  with pytest.raises(errors.DataError, match='has <unknown> among its first 2'):
    text.read_vocabulary(path, 2)
  assert text.read_vocabulary(path, 1).words == ('the',)


def test_padding():
  assert text.pad_right([5, 6], 3) == [5, 6, 0]
  assert text.pad_right([5, 6, 7, 8], 3) == [5, 6, 7]
  assert text.pad_left([5, 6], 3) == [0, 5, 6]
  assert text.pad_left([5, 6, 7, 8], 3) == [6, 7, 8]
