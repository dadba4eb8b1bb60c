import pytest

from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors


def _source(folder, **more):
  return registry.create(
    'sentiment140', raw_sources.write_sentiment140(folder) | more, 0
  )


def test_tweets_by_account(tmp_path):
  """CMFL: by account, two classes; words counted by hand."""
  source = _source(tmp_path)
  examples = raw_sources.read(source)
  vocabulary = source.facts()['vocabulary']
  # Three times each; the other words come less often.
  assert vocabulary[:3] == ['day', 'good', 'sad']
  assert [e.y for e in examples] == [0, 1, 1, 0, 1, 0]
  assert [e.client for e in examples] == [
    *('ann', 'ann', 'bob', 'bob', 'ann', 'bob')
  ]
  assert examples[3].x == [0, 0, 0, 0]
  assert examples[4].x == [2, 2, 1, 0]
  unknown = source.facts()['special_ids']['unknown']
  assert unknown == 6
  assert examples[2].x[0] == unknown
  features = source.features()
  assert (features.num_classes, features.x_shape) == (2, (4,))


@pytest.mark.parametrize(
  ('date', 'time'),
  [
    # 22:19:45 seven hours behind UTC is 05:19:45 of the next day.
    ('Mon Apr 06 22:19:45 PDT 2009', 1239081585.0),
    ('Tue Apr 07 05:19:45 UTC 2009', 1239081585.0),
    ('Mon Apr 06 22:19:45 LMT 2009', None),
    ('Mon Apr 06', None),
    ('Mon Apr 66 22:19:45 PDT 2009', None),
    ('', None),
  ],
)
def test_tweets_have_the_time_of_their_date(tmp_path, date, time):
  source = _source(tmp_path)
  (tmp_path / 'tweets.csv').write_text(f'4,1,{date},NO_QUERY,ann,good day\n')
  (tweet,) = raw_sources.read(source)
  assert (tweet.time, tweet.group, tweet.problem) == (time, 'ann', None)


@pytest.mark.parametrize(
  ('content', 'line'),
  [
    ('4,1,d,Q,ann,"good day\n0,2,d,Q,bob,sad\n4,3,d,Q,cid,fine\n', 1),
    ('4,1,d,Q,ann,good\n4,2,d,Q,ann,"so go', 2),
  ],
)
def test_an_open_quotation_mark_hides_no_tweets(tmp_path, content, line):
  source = _source(tmp_path)
  (tmp_path / 'tweets.csv').write_text(content)
  with pytest.raises(
    errors.DataError, match=f'line {line} of .* Close its quotation'
  ):
    source.blocks()


def test_vocabulary_of_a_file(tmp_path):
  (tmp_path / 'words').write_text('sad\ncafé\n')
  source = _source(tmp_path, vocabulary_file='words', vocabulary_size=2)
  examples = raw_sources.read(source)
  assert examples[0].x == [3, 3, 1, 3]
  assert examples[2].x == [2, 3, 3, 3]
  assert sorted(source.checksums()) == ['tweets.csv', 'words']


def test_neutral_tweets_and_odd_rows_are_problems(tmp_path):
  source = _source(tmp_path, test_file='test.csv')
  (tmp_path / 'test.csv').write_text(
    '"2","1","d","q","ann","so so"\n"4","1"\n"4","1","d","q","bob","fine"\n'
  )
  neutral, short, good = raw_sources.read(source)[6:]
  assert str(neutral.problem) == "the mood is neither 0 nor 4, got '2'"
  assert str(short.problem) == 'the row has 2 columns, not 6'
  place = source.locate('train', 0)
  assert place.file and len(place.row) == 6
  assert (good.y, good.is_test, good.client) == (1, True, 'bob')


def test_encoding_is_never_guessed(tmp_path):
  with pytest.raises(errors.DataError, match='not UTF-8 text'):
    _source(tmp_path, encoding='utf-8').blocks()


def test_field_that_never_ends(tmp_path):
  source = _source(tmp_path)
  (tmp_path / 'tweets.csv').write_text('"' + 'a' * (1 << 24 | 1))
  with pytest.raises(errors.DataError, match='no CSV.*limit'):
    source.blocks()


@pytest.mark.parametrize(
  'more', [{'encoding': 'cp1252'}, {'length': 0}, {'vocabulary_size': 0}]
)
def test_bad_options(more):
  with pytest.raises(errors.ConfigError, match=next(iter(more))):
    registry.create('sentiment140', {'folder': 'x'} | more, 0)
