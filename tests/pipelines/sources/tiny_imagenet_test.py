import pathlib

import numpy as np
import pytest

from pipelines.examples import cleaning
from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors


def _source(folder):
  return registry.create(
    'tiny_imagenet', raw_sources.write_tiny_imagenet(folder), 0
  )


def test_images_by_class(tmp_path):
  """Filter decomposition, on two classes of 2 and 1 images."""
  source = _source(tmp_path)
  examples = raw_sources.read(source)
  assert [(e.y, e.is_test) for e in examples] == [
    *((0, False), (0, False), (1, False), (1, False), (0, True), (1, True))
  ]
  # Flat grey images survive JPEG but for a rounding or two.
  for example, level in zip(examples, (50, 50, 150, 150, 0, 100), strict=True):
    assert example.x.shape == source.features().x_shape == (64, 64, 3)
    assert np.all(np.abs(example.x.astype(int) - level) <= 2)
  assert source.features().num_classes == 2
  assert source.facts() == {'class_names': ['n2', 'n1']}


def test_images_that_arrive_are_seen_by_the_same_process(tmp_path):
  before = _source(tmp_path)
  assert len(raw_sources.read(before)) == 6
  raw_sources.write_jpeg(
    tmp_path / 'train/n2/images/n2_9.JPEG', 80, (64, 64, 3)
  )
  options = {'folder': str(tmp_path)}
  assert (
    len(raw_sources.read(registry.create('tiny_imagenet', options, 0))) == 7
  )


def test_grey_images_get_three_channels(tmp_path):
  source = _source(tmp_path)
  raw_sources.write_jpeg(
    tmp_path / 'train/n2/images/n2_0.JPEG', 80, (64, 64, 1)
  )
  image = raw_sources.read(source)[0].x
  assert image.shape == (64, 64, 3)
  np.testing.assert_array_equal(image[..., 0], image[..., 2])


def test_damaged_and_odd_images_are_dead_letters(tmp_path):
  source = _source(tmp_path)
  images = tmp_path / 'train' / 'n2' / 'images'
  (images / 'n2_0.JPEG').write_bytes(b'\xff\xd8 no image')
  raw_sources.write_jpeg(images / 'n2_1.JPEG', 80, (32, 64, 3))
  other = tmp_path / 'train' / 'n1' / 'images' / 'n1_0.JPEG'
  other.write_bytes(other.read_bytes()[:-200])
  (tmp_path / 'val' / 'images' / 'v0.JPEG').write_bytes(b'')
  dead = [
    cleaning.locate(letter, source)
    for block in source.blocks()
    for letter in cleaning.clean(block, source.read(block), source.features())[
      1
    ]
  ]
  broken = 'the file is no whole JPEG image'
  assert [(pathlib.Path(one.file).name, one.reason) for one in dead] == [
    ('n2_0.JPEG', broken),
    ('n2_1.JPEG', 'the shape is (32, 64, 3), not (64, 64, 3)'),
    ('n1_0.JPEG', broken),
    ('v0.JPEG', broken),
  ]


def test_validation_image_of_an_unknown_class(tmp_path):
  source = _source(tmp_path)
  (tmp_path / 'val' / 'val_annotations.txt').write_text('v0.JPEG\tn9\t0\n')
  assert raw_sources.read(source)[-1].problem == (
    'the class is unknown',
    None,
    "'n9'",
  )


@pytest.mark.parametrize('line', ['v9.JPEG\tn1', 'v0.JPEG', '', 'a\0b\tn1'])
def test_annotation_that_names_nothing(tmp_path, line):
  source = _source(tmp_path)
  (tmp_path / 'val' / 'val_annotations.txt').write_text(f'{line}\n')
  with pytest.raises(errors.DataError, match='line 1 of .*val_annotations'):
    source.blocks()


@pytest.mark.parametrize('text', ['', 'n1\n', 'n1\nn1\n'])
def test_too_few_classes(tmp_path, text):
  source = _source(tmp_path)
  (tmp_path / 'wnids.txt').write_text(text)
  with pytest.raises(errors.DataError, match='different classes'):
    source.features()


def test_class_without_images(tmp_path):
  source = _source(tmp_path)
  (tmp_path / 'wnids.txt').write_text('n1\nn3\n')
  with pytest.raises(errors.DataError, match="no training image of class 'n3'"):
    source.blocks()
