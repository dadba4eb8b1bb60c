"""Tests of the fixed vectors of words."""

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.models.text import embeddings

_WORDS = (None, 'good', 'écu', 'day', None)


def _read(tmp_path, text, size=2):
  path = tmp_path / 'vectors.txt'
  path.write_text(text, encoding='utf-8')
  return embeddings.read(path, _WORDS, size)


def test_words_have_the_ids_that_are_not_special():
  special = {'padding': 0, 'unknown': 4, 'begin': 2}
  words = embeddings.word_ids(['good', 'day'], special)
  assert words == (None, 'good', None, 'day', None)
  assert embeddings.word_ids(['good'], {}) == ('good',)


def test_vectors_are_aligned_with_the_ids(tmp_path):
  """Unknown words are skipped; missing and repeated words are handled."""
  text = (
    'the 9 9\nday 0.5 -1e-2\n. . 7 7\ngood morning 8 8\nécu 3 4\r\nday 6 6\n'
  )
  table = _read(tmp_path, text)
  assert table.dtype == np.float32
  expected = [[0, 0], [0, 0], [3, 4], [0.5, -0.01], [0, 0]]
  np.testing.assert_allclose(table, expected)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('the 1 2 3\n', 'embedding_size is 2, but line 1 of .* has 3 numbers'),
    ('the 1\nday 1 2\n', 'embedding_size is 2, but line 1 of .* has 1 numbers'),
    ('the 1 2\nday 1\n', 'embedding_size is 2, but line 2 of .* has 1 numbers'),
    ('the 1 2\nday 1 x\n', "line 2 of .* must have finite .* got ..1', 'x'"),
    ('day nan 1\n', 'line 1 of .* must have finite numbers'),
    ('the 1 2\nGood 1 2\n', 'none of the 3 words .* same language'),
    ('', 'none of the 3 words'),
  ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
  with pytest.raises(errors.ConfigError, match=message):
    _read(tmp_path, text)


def test_what_is_no_text_is_refused(tmp_path):
  path = tmp_path / 'vectors.txt'
  for _ in range(2):
    with pytest.raises(errors.ConfigError, match='cannot be read as UTF-8'):
      embeddings.read(path, _WORDS, 2)
    path.write_bytes(b'\xff\xfe\x00')
  with pytest.raises(errors.ConfigError, match='cannot be read as UTF-8'):
    embeddings.read(tmp_path, _WORDS, 2)


def test_drawn_vectors():
  """Mean and variance within 5 standard errors: false alarms below 1e-5."""
  words = (None, *(f'word_{i}' for i in range(50)), None)
  table = embeddings.draw(words, 40, seed=3)
  assert table.dtype == np.float32
  assert not table[[0, -1]].any()
  drawn = table[1:-1]
  assert abs(drawn.mean()) < 5 / drawn.size**0.5
  assert abs(drawn.var() - 1) < 5 * (2 / drawn.size) ** 0.5
  assert len(np.unique(drawn)) > 0.99 * drawn.size


def test_a_drawn_vector_depends_on_its_word_and_the_seed_alone():
  table = embeddings.draw(('a', 'b'), 3, seed=0)
  other = embeddings.draw((None, 'b', 'c', 'a'), 3, seed=0)
  np.testing.assert_array_equal(table, other[[3, 1]])
  assert (embeddings.draw(('a',), 3, seed=1)[0] != table[0]).all()
