import os
import pathlib

import numpy as np
import pytest
import tensorflow_datasets as tfds

from pipelines.sources import registry
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
          'photo': np.zeros((2, 2, 3), np.uint8),
        },
      )

  def _generate_examples(self):
    raise NotImplementedError


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  """A folder in which the tiny set is prepared."""
  folder = tmp_path_factory.mktemp('tfds')
  TinyImages(data_dir=folder).download_and_prepare()
  return str(folder)


def _source(data_dir, name='tiny_images', **more):
  return registry.create(
    'tfds', {'name': name, 'data_dir': data_dir, **more}, 0
  )


def _read(source):
  return [e for block in source.blocks() for e in source.read(block)]


def test_reads_both_splits(data_dir):
  source = _source(data_dir)
  examples = _read(source)
  pixels = [int(e.x[0, 0, 0]) for e in examples]
  assert sorted(pixels) == list(range(12))
  assert [e.y for e in examples] == [pixel % 3 for pixel in pixels]
  assert [e.is_test for e in examples] == [pixel >= 9 for pixel in pixels]
  assert source.features().x_shape == (4, 4, 1)
  assert source.features().num_classes == 3
  assert source.has_test_split()


def test_order_is_always_the_same(data_dir):
  first, second = (
    [int(e.x[0, 0, 0]) for e in _read(_source(data_dir))] for _ in range(2)
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


def test_unknown_split(data_dir):
  with pytest.raises(
    errors.DataError, match="no split 'dev'; it has train, test"
  ):
    _source(data_dir, test_split='dev').blocks()


def test_unknown_set(data_dir):
  with pytest.raises(errors.DataError, match="no set 'no_such_set'"):
    _source(data_dir, name='no_such_set').blocks()


def test_set_that_is_not_prepared_is_not_fetched_unasked(tmp_path):
  with pytest.raises(errors.DataError, match='not prepared.*manual_dir'):
    _source(str(tmp_path), name='mnist').blocks()


@pytest.mark.slow
def test_real_mnist_from_a_folder_of_original_files(tmp_path):
  if not _MNIST.is_dir():
    pytest.skip(f'no MNIST at {_MNIST}; set MNIST_DIR to its folder')
  source = _source(
    str(tmp_path),
    name='mnist',
    manual_dir=str(_MNIST),
    download_dir=str(tmp_path / 'downloads'),
  )
  labels = [e.y for e in _read(source) if e.is_test]
  np.testing.assert_array_equal(
    np.bincount(labels), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
  )
