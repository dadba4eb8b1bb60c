import os
import pathlib
import shutil
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors

_MNIST = pathlib.Path(os.environ.get('MNIST_DIR', '../shared/data/mnist'))


class TinyImages(tfds.core.GeneratorBasedBuilder):
  """Twelve 4x4 images, made here."""

  VERSION = tfds.core.Version('1.0.0')

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.FeaturesDict(
        {
          'image': tfds.features.Image(shape=(4, 4, 1)),
          'label': tfds.features.ClassLabel(num_classes=3),
          'animal': tfds.features.ClassLabel(names=['cat', 'dog', 'eel']),
          'photo': tfds.features.Image(shape=(None, None, 3)),
        }
      ),
    )

  def _split_generators(self, dl_manager):
    return {'train': self._generate(0, 9), 'test': self._generate(9, 12)}

  def _generate(self, start, stop):
    for i in range(start, stop):
      yield (
        i,
        {
          'image': np.full((4, 4, 1), i, np.uint8),
          'label': i % 3,
          'animal': i % 3,
          'photo': np.zeros((2, 2, 3), np.uint8),
        },
      )

  def _generate_examples(self):
    raise NotImplementedError


_TEXTS = (
  (b'good day', 4, b'ann'),
  (b'sad, sad day', 0, b'bob'),
  (b'so so', 2, b'ann'),
  (b'\xff', 4, b'bob'),
)


class TinyTexts(tfds.core.GeneratorBasedBuilder):
  """Four texts, as Sentiment140 has them; the last is not UTF-8."""

  VERSION = tfds.core.Version('1.0.0')

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.FeaturesDict(
        {
          'text': tfds.features.Text(),
          'polarity': np.int32,
          'user': tfds.features.Text(),
          'weight': np.float32,
        }
      ),
    )

  def _split_generators(self, dl_manager):
    return {'train': self._generate()}

  def _generate(self):
    for i, (text, polarity, user) in enumerate(_TEXTS):
      yield (
        i,
        {'text': text, 'polarity': polarity, 'user': user, 'weight': 1.0},
      )

  def _generate_examples(self):
    raise NotImplementedError


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  """A folder in which the tiny sets are prepared."""
  folder = tmp_path_factory.mktemp('tfds')
  TinyImages(data_dir=folder).download_and_prepare()
  TinyTexts(data_dir=folder).download_and_prepare()
  return str(folder)


def _source(data_dir, name='tiny_images', **more):
  return registry.create(
    'tfds', {'name': name, 'data_dir': data_dir, **more}, 0
  )


def test_a_package_that_is_missing_is_named(data_dir, monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  source = _source(data_dir)
  with pytest.raises(errors.UserError, match="install the extra 'tfds'"):
    source.features()


def test_reads_both_splits(data_dir):
  source = _source(data_dir)
  examples = raw_sources.read(source)
  pixels = [int(e.x[0, 0, 0]) for e in examples]
  assert sorted(pixels) == list(range(12))
  assert [e.y for e in examples] == [pixel % 3 for pixel in pixels]
  assert [e.is_test for e in examples] == [pixel >= 9 for pixel in pixels]
  assert source.features().x_shape == (4, 4, 1)
  assert source.features().num_classes == 3
  assert source.has_test_split()


def test_order_is_always_the_same(data_dir):
  first, second = (
    [int(e.x[0, 0, 0]) for e in raw_sources.read(_source(data_dir))]
    for _ in range(2)
  )
  assert first == second


def test_recipe_names_the_version_and_no_folder(data_dir):
  source = _source(data_dir)
  assert source.recipe()['tfds_name'] == 'tiny_images/1.0.0'
  assert data_dir not in str(source.recipe())
  assert len(source.checksums()) == 2


@pytest.mark.parametrize(
  ('more', 'text'),
  [
    ({'image': 'picture'}, "no feature 'picture'.*image, label"),
    ({'label': 'image'}, "no feature 'image' of type ClassLabel"),
    ({'image': 'photo'}, 'must all have one shape'),
  ],
)
def test_features_that_do_not_fit(data_dir, more, text):
  with pytest.raises(errors.DataError, match=text):
    _source(data_dir, **more).features()


def _texts(data_dir, **more):
  options = {
    'text': 'text',
    'label': 'polarity',
    'classes': (0, 4),
    'client': 'user',
    'test_split': '',
    'length': 3,
    'vocabulary_size': 2,
  }
  return _source(data_dir, 'tiny_texts', **(options | more))


def test_texts_by_account(data_dir):
  source = _texts(data_dir)
  examples = {e.client or str(e.problem): e for e in raw_sources.read(source)}
  # day, sad and so come twice; of three equal ones the last has no place.
  assert source.facts()['vocabulary'] == ['day', 'sad']
  assert examples['ann'].x == [3, 1, 0]
  assert examples['ann'].y == 1
  assert examples['bob'].x == [2, 3, 2]
  assert examples['bob'].y == 0
  assert {*examples} == {
    'ann',
    'bob',
    'the label is none of the classes, got 2',
    'the text is not UTF-8',
  }
  features = source.features()
  assert (features.x_dtype, features.x_shape) == ('int32', (3,))
  assert features.num_classes == 2


@pytest.mark.parametrize(
  ('more', 'text'),
  [
    ({'text': 'user_name'}, "no feature 'user_name' of type Text"),
    ({'text': 'polarity'}, "no feature 'polarity' of type Text"),
    ({'classes': None}, "no feature 'polarity' of type ClassLabel"),
    ({'label': 'weight'}, "'weight' of 'tiny_texts' is no whole number"),
    ({'client': 'account'}, "no feature 'account'; its features"),
  ],
)
def test_features_of_texts_that_do_not_fit(data_dir, more, text):
  with pytest.raises(errors.DataError, match=text):
    _texts(data_dir, **more).features()


def test_classes_that_are_chosen(data_dir):
  source = _source(data_dir, classes=(2, 0))
  labels = {
    int(e.x[0, 0, 0]): e.y
    for e in raw_sources.read(source)
    if e.problem is None
  }
  assert labels == {i: (i % 3 == 0) * 1 for i in range(12) if i % 3 != 1}
  assert source.features().num_classes == 2


@pytest.mark.parametrize('classes', [(0, 3), (-1, 2)])
def test_classes_that_the_set_does_not_have(data_dir, classes):
  source = _source(data_dir, label='animal', classes=classes)
  with pytest.raises(
    errors.DataError, match="from 0 to 2, the labels 'animal'"
  ):
    source.features()


def test_classes_have_the_names_of_the_set(data_dir):
  assert _source(data_dir).facts() == {}
  named = _source(data_dir, label='animal')
  assert named.facts() == {'class_names': ['cat', 'dog', 'eel']}
  chosen = _source(data_dir, label='animal', classes=(2, 0))
  assert chosen.facts() == {'class_names': ['eel', 'cat']}
  assert [*_texts(data_dir).facts()] == ['vocabulary', 'special_ids']


def test_images_without_a_declared_shape(data_dir):
  source = _source(data_dir, image='photo', image_shape=(2, 2, 3))
  assert source.features().x_shape == (2, 2, 3)
  assert all(e.x.shape == (2, 2, 3) for e in raw_sources.read(source))


def test_transposed_images(data_dir):
  source = _source(
    data_dir, image='photo', image_shape=(2, 5, 3), transpose=True
  )
  assert source.features().x_shape == (5, 2, 3)
  plain, turned = (
    next(iter(raw_sources.read(_source(data_dir, image='image', transpose=t))))
    for t in (False, True)
  )
  np.testing.assert_array_equal(turned.x, plain.x.transpose(1, 0, 2))


@pytest.mark.parametrize('file', ['tfrecord', 'info.json'])
def test_damaged_files(data_dir, tmp_path, file):
  copy = tmp_path / 'copy'
  shutil.copytree(data_dir, copy)
  for path in copy.glob(f'tiny_images/*/*{file}*'):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
  with pytest.raises(errors.DataError, match='cannot be read or prepared'):
    raw_sources.read(_source(str(copy)))


def test_original_files_that_are_others(tmp_path):
  for name in ('train-images-idx3', 'train-labels-idx1', 't10k-images-idx3'):
    (tmp_path / f'{name}-ubyte.gz').write_bytes(b'x')
  (tmp_path / 't10k-labels-idx1-ubyte.gz').write_bytes(b'x')
  source = _source(
    str(tmp_path / 'out'),
    name='mnist',
    manual_dir=str(tmp_path),
    download_dir=str(tmp_path / 'downloads'),
  )
  with pytest.raises(errors.DataError, match="'mnist' cannot be read or prep"):
    source.blocks()


@pytest.mark.parametrize(
  'more', [{'classes': (1,)}, {'length': 0}, {'vocabulary_size': 0}]
)
def test_bad_options(more):
  with pytest.raises(errors.ConfigError, match=next(iter(more))):
    _source('x', **more)


def test_unknown_split(data_dir):
  with pytest.raises(
    errors.DataError, match="no split 'dev'; it has train, test"
  ):
    _source(data_dir, test_split='dev').blocks()


def test_unknown_set(data_dir):
  with pytest.raises(errors.DataError, match="no data set 'no_such_set'"):
    _source(data_dir, name='no_such_set').blocks()


def test_set_that_is_not_prepared_is_not_fetched_unasked(tmp_path):
  with pytest.raises(errors.DataError, match='not prepared.*manual_dir'):
    _source(str(tmp_path), name='mnist').blocks()


@pytest.mark.verify
def test_real_mnist_from_a_folder_of_original_files(tmp_path):
  if not _MNIST.is_dir():
    pytest.skip(f'no MNIST at {_MNIST}; set MNIST_DIR to its folder')
  source = _source(
    str(tmp_path),
    name='mnist',
    manual_dir=str(_MNIST),
    download_dir=str(tmp_path / 'downloads'),
  )
  labels = [e.y for e in raw_sources.read(source) if e.is_test]
  np.testing.assert_array_equal(
    np.bincount(labels), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
  )
