import re

import numpy as np
import pytest

from pipelines.examples import cleaning, hashing
from pipelines.sources import base
from tff_algos.core import errors

_IMAGES = base.image_features((2, 2), 3)
_VECTORS = base.Features('float32', (2,), 1.0, 0.0, 'regression', 0)
_GOOD = np.array([[0, 255], [3, 4]])


@pytest.mark.parametrize('dtype', [np.uint8, np.int64, np.float64])
def test_sound_image(dtype):
  example = base.RawExample(_GOOD.astype(dtype), 2)
  assert cleaning.find_problem(example, _IMAGES) is None


@pytest.mark.parametrize(
  ('x', 'y', 'problem'),
  [
    (None, 1, 'features are missing'),
    (_GOOD, None, 'label is missing'),
    (_GOOD[:1], 1, r'shape is \(1, 2\), not \(2, 2\)'),
    (_GOOD.astype(str), 1, 'not numbers'),
    (np.array([[0, np.nan], [1, 2]]), 1, 'not finite'),
    (np.array([[0, np.inf], [1, 2]]), 1, 'not finite'),
    (_GOOD + 1, 1, 'not an integer from 0 to 255'),
    (_GOOD - 1, 1, 'not an integer from 0 to 255'),
    (_GOOD + 0.5, 1, 'not an integer from 0 to 255'),
    (_GOOD, 3, 'label is not from 0 to 2, got 3'),
    (_GOOD, -1, 'label is not from 0 to 2, got -1'),
    (_GOOD, 0.5, 'label is not from 0 to 2, got 0.5'),
    (_GOOD, np.nan, 'not a finite float32'),
    (_GOOD, 'cat', "label is not a finite float32 number, got 'cat'"),
  ],
)
def test_malformed_image(x, y, problem):
  found = cleaning.find_problem(base.RawExample(x, y), _IMAGES)
  assert found is not None
  assert re.search(problem, str(found))


@pytest.mark.parametrize(
  ('x', 'y', 'problem'),
  [
    (np.array([1.0, 1e300]), 1.0, 'too large for float32'),
    (np.array([1.0, 2.0]), 1e300, 'not a finite float32'),
    (np.array([1.0, 2.0]), -np.inf, 'not a finite float32'),
  ],
)
def test_malformed_vector(x, y, problem):
  found = cleaning.find_problem(base.RawExample(x, y), _VECTORS)
  assert problem in str(found)


@pytest.mark.parametrize('value', [-1e-6, 1.000001, 255.0, 1e30])
def test_feature_outside_the_range_of_the_source(value):
  features = base.float_image_features((2,), 3)
  edges = base.RawExample(np.array([0.0, 1.0]), 1)
  assert cleaning.find_problem(edges, features) is None
  outside = base.RawExample(np.array([0.5, value]), 1)
  assert cleaning.find_problem(outside, features) == base.Problem(
    'a feature is not from 0 to 1', value=repr(value)
  )
  assert cleaning.find_problem(outside._replace(y=1.0), _VECTORS) is None


_POSTS = base.token_features(2, 9)._replace(y_shape=(2,))


@pytest.mark.parametrize(
  ('y', 'problem'),
  [
    ([3, 8], None),
    ([3], 'the labels have shape (1,), not (2,)'),
    (3, 'the labels have shape (), not (2,)'),
    ([3, 9], 'the label is not from 0 to 8, got 9'),
    ([0.5, 3], 'the label is not from 0 to 8, got 0.5'),
  ],
)
def test_labels_at_several_places(y, problem):
  found = cleaning.find_problem(base.RawExample([1, 2], y), _POSTS)
  assert problem == (None if found is None else str(found))


@pytest.mark.parametrize('labels', [[], [[3, 8], [0, 1]]])
def test_labels_at_several_places_are_stacked(labels):
  examples = [base.RawExample([1, 2], y) for y in labels]
  block = base.Block('train', 0, len(labels))
  sound, dead = cleaning.clean(block, examples, _POSTS)
  assert not dead
  assert sound.y.shape == (len(labels), 2)
  assert sound.y.tolist() == labels


def test_a_problem_of_the_source_is_kept():
  example = base.malformed('line is torn')
  assert cleaning.find_problem(example, _VECTORS) == base.Problem(
    'line is torn'
  )


def test_clean_parts_sound_from_malformed():
  block = base.Block('train', 10, 13)
  examples = [
    base.RawExample(_GOOD, 1, is_test=True, client='ann'),
    base.RawExample(None, 1),
    base.RawExample(_GOOD.T, 2, native_source=1),
  ]
  sound, dead = cleaning.clean(block, examples, _IMAGES)
  assert dead == [cleaning.DeadLetter('train', 11, 'the features are missing')]
  assert sound.x.dtype == np.uint8
  np.testing.assert_array_equal(sound.x, [_GOOD, _GOOD.T])
  np.testing.assert_array_equal(sound.y, [1, 2])
  assert sound.y.dtype == np.int32
  np.testing.assert_array_equal(sound.is_test, [True, False])
  np.testing.assert_array_equal(sound.native_source, [-1, 1])
  np.testing.assert_array_equal(sound.client, ['ann', ''])
  assert sound.key[0].tobytes() == hashing.content_key(_GOOD.astype(np.uint8))


def test_clean_block_without_a_sound_example():
  sound, dead = cleaning.clean(
    base.Block('train', 0, 1), [base.RawExample(None, 1)], _VECTORS
  )
  assert len(dead) == 1
  assert sound.x.shape == (0, 2)
  assert sound.key.shape == (0, 16)
  assert sound.y.dtype == np.float32


_LETTERS = [
  cleaning.DeadLetter('train', 4, 'torn'),
  cleaning.DeadLetter('train', 7, 'burnt'),
  cleaning.DeadLetter('test', 0, 'torn'),
]


@pytest.mark.parametrize(('num_raw', 'allowed'), [(100, 0.03), (4, 0.9)])
def test_few_dead_letters_pass(num_raw, allowed):
  cleaning.check_dead_letters(_LETTERS, num_raw, allowed)


def test_the_allowed_share_itself_passes():
  """As floats, 0.29 times 100 is just below 29."""
  cleaning.check_dead_letters(_LETTERS[:1] * 29, 100, 0.29)


@pytest.mark.parametrize(('num_raw', 'allowed'), [(100, 0.029), (3, 1.0)])
def test_too_many_dead_letters(num_raw, allowed):
  with pytest.raises(
    errors.DataError,
    match=rf"3 of {num_raw} raw .*torn \(2\); burnt \(1\).* 4 of 'train'",
  ):
    cleaning.check_dead_letters(_LETTERS, num_raw, allowed)


def test_source_without_examples():
  with pytest.raises(errors.DataError, match='has no examples'):
    cleaning.check_dead_letters([], 0, 1.0)


@pytest.mark.parametrize(
  'client',
  [
    '../a/b\\c',
    '"quoted" o\'hara',
    'мария ☃ 名前 \u202e',
    ' ',
    'a' * cleaning.MAX_CLIENT_ID_CHARACTERS,
  ],
)
def test_odd_client_ids_are_sound(client):
  example = base.RawExample(_GOOD, 1, client=client)
  assert cleaning.find_problem(example, _IMAGES) is None


@pytest.mark.parametrize(
  ('client', 'problem'),
  [
    (7, 'the client id is not text, got 7'),
    ('ab' * 5000, 'the client id has 10000 characters, allowed are 128'),
    ('a\0', 'has a zero byte'),
    ('\ud800', 'is not Unicode text'),
  ],
)
def test_client_ids_that_cannot_be_kept(client, problem):
  example = base.RawExample(_GOOD, 1, client=client)
  assert problem in str(cleaning.find_problem(example, _IMAGES))


@pytest.mark.parametrize('token', [0.5, 2**31, -(2**31) - 1, np.nan])
def test_token_that_is_none(token):
  features = base.token_features(2, 3)
  example = base.RawExample([1, token], 1)
  assert cleaning.find_problem(example, features).reason in (
    'a token is not an integer of 32 bits',
    'a feature is not finite',
  )
  assert cleaning.find_problem(base.RawExample([1, 2], 1), features) is None


@pytest.mark.parametrize(
  ('file', 'line', 'place'),
  [
    ('t.csv', 7, 'line 7 of t.csv'),
    ('ann/cat/0.png', None, "number 3 of 'all', ann/cat/0.png"),
    (None, None, "number 3 of 'all'"),
  ],
)
def test_place_of_a_dead_letter(file, line, place):
  letter = cleaning.DeadLetter('all', 3, 'broken', file=file, line=line)
  assert letter.place == place


def test_a_redacted_letter_does_not_name_the_file_of_one_example():
  letter = cleaning.DeadLetter(
    *('all', 3, 'damaged', None, 'b', 'ann', 'ann/melanoma/1.png', None)
  )
  assert cleaning.redact(letter) == cleaning.DeadLetter('all', 3, 'damaged')
  letter = cleaning.DeadLetter('all', 3, 'damaged', file='table.csv', line=5)
  assert cleaning.redact(letter) == letter


def test_group_that_is_no_text():
  example = base.RawExample(_GOOD, 1, group='\udcff')
  assert cleaning.find_problem(example, _IMAGES) is None
  found = cleaning.find_problem(example, _IMAGES, cleaning.Needs(group=True))
  assert str(found) == "the group is not Unicode text, got '\\udcff'"
