import pytest
import tensorflow as tf

from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors


def _source(folder, **more):
  return registry.create(
    'stack_overflow', raw_sources.write_stack_overflow(folder) | more, 0
  )


# the a how to do i: 1 to 6; another word 7, beginning 8, end 9.
def test_next_words(tmp_path):
  """PPFL: 'how do i xyzzy' and 'a', cut after five words."""
  source = _source(tmp_path)
  train = [
    e for e in raw_sources.read(source) if e.client == '0001' and not e.is_test
  ]
  assert [(list(e.x), e.y) for e in train] == [
    ([0, 0, 0, 0, 8], 3),
    ([0, 0, 0, 8, 3], 5),
    ([0, 0, 8, 3, 5], 6),
    ([0, 8, 3, 5, 6], 7),
    ([8, 3, 5, 6, 7], 9),
    ([0, 0, 0, 0, 8], 2),
    ([0, 0, 0, 8, 2], 9),
  ]
  features = source.features()
  assert (features.x_shape, features.num_classes) == ((5,), 10)
  assert source.facts()['special_ids'] == {
    'padding': 0,
    'unknown': 7,
    'begin': 8,
    'end': 9,
  }


def test_words_of_a_post_have_its_group_and_time(tmp_path):
  """So no split by group or by time divides a post."""
  record = raw_sources.post_record('a b')
  created = record.features.feature['creation_date'].bytes_list.value
  created.append(b'2008-08-06 11:34:22.8 UTC')
  source = _with_posts(tmp_path, record, raw_sources.post_record('b'))
  times = [1218022462.8] * 3 + [None] * 2
  examples = raw_sources.read(source)
  assert [e.time for e in examples] == times
  assert [e.group for e in examples] == ['post a b'] * 3 + ['post b'] * 2


def test_long_post_is_cut_and_has_no_end(tmp_path):
  train = [e for e in raw_sources.read(_source(tmp_path)) if e.client == '0002']
  assert [e.y for e in train] == [1] * 5
  assert list(train[-1].x) == [8, 1, 1, 1, 1]


def _with_posts(folder, *records):
  raw_sources.write_database(
    folder / 'stackoverflow.sqlite', {'me': {'train': list(records)}}
  )
  (folder / 'vocabulary.txt').write_text('a\n')
  return registry.create(
    'stack_overflow', {'folder': str(folder), 'vocabulary_size': 1}, 0
  )


def test_same_ids_as_tffs_baseline(tmp_path):
  """The recipe of TFF's baseline, written with TensorFlow, on 20 words."""
  posts = ['a b a', 'a ' * 30 + 'a', 'b', 'a  b']
  source = _with_posts(tmp_path, *map(raw_sources.post_record, posts))
  expected = []
  for post in posts:
    words = tf.strings.split([post], sep=' ').values[:20]
    ids = tf.where(words == 'a', 1, 2)
    if len(ids) < 20:
      ids = tf.concat([ids, [4]], 0)
    expected += ids.numpy().tolist()
  assert [e.y for e in raw_sources.read(source)] == expected


def test_empty_post_is_its_end(tmp_path):
  source = _with_posts(tmp_path, raw_sources.post_record(''))
  (example,) = raw_sources.read(source)
  assert (list(example.x), example.y) == ([0] * 19 + [3], 4)


def test_odd_posts_are_problems(tmp_path):
  source = _with_posts(
    tmp_path, raw_sources.post_record(b'\xff'), tf.train.Example()
  )
  assert [e.problem and e.problem.reason for e in raw_sources.read(source)] == [
    'the post is not UTF-8 text',
    'the record has 0 texts, not 1',
  ]


def test_max_posts(tmp_path):
  source = _source(tmp_path, max_posts=1)
  train = [
    e for e in raw_sources.read(source) if not e.is_test and e.client == '0001'
  ]
  assert [e.y for e in train] == [3, 5, 6, 7, 9]


@pytest.mark.parametrize(
  'more',
  [
    {'length': 0},
    {'vocabulary_size': 0},
    {'max_posts': 0},
    {'examples_are': 'letters'},
  ],
)
def test_bad_options(more):
  with pytest.raises(errors.ConfigError, match=next(iter(more))):
    registry.create('stack_overflow', {'folder': 'x'} | more, 0)


def test_posts_have_a_label_at_each_place(tmp_path):
  source = _source(tmp_path, examples_are='posts')
  train = [e for e in raw_sources.read(source) if not e.is_test]
  assert [(e.client, list(e.x), list(e.y)) for e in train] == [
    ('0001', [8, 3, 5, 6, 7], [3, 5, 6, 7, 9]),
    ('0001', [8, 2, 0, 0, 0], [2, 9, 0, 0, 0]),
    ('0002', [8, 1, 1, 1, 1], [1, 1, 1, 1, 1]),
  ]
  features = source.features()
  assert (features.x_shape, features.y_shape) == ((5,), (5,))


def test_posts_and_words_have_the_same_labels(tmp_path):
  posts = raw_sources.read(_source(tmp_path, examples_are='posts'))
  (tmp_path / 'stackoverflow.sqlite').unlink()
  words = raw_sources.read(_source(tmp_path))
  labels = [label for e in posts for label in e.y if label]
  assert labels == [e.y for e in words]
