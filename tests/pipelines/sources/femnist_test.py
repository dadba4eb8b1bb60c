import json
import shutil

import numpy as np
import pytest

from pipelines.examples import cleaning
from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors


def _source(folder, **more):
  return registry.create('femnist', raw_sources.write_femnist(folder) | more, 0)


def test_images_by_writer(tmp_path):
  """CMFL: by writer, 62 classes."""
  source = _source(tmp_path)
  examples = raw_sources.read(source)
  assert [(e.client, e.y) for e in examples] == [
    ('f0001_41', 3),
    ('f0001_41', 61),
    ('f0002_00', 0),
    ('f0003_07', 10),
    ('f0003_07', 36),
    ('f0003_07', 9),
  ]
  assert [e.group for e in examples] == [e.client for e in examples]
  image = examples[0].x
  assert image.shape == source.features().x_shape == (28, 28, 1)
  assert image[0, 0, 0] == np.float32(3 / 64)
  assert image[27, 27, 0] == 1
  assert source.features().num_classes == 62
  assert not source.has_test_split()


def test_test_folder(tmp_path):
  source = _source(tmp_path, test='test')
  shutil.copytree(tmp_path / 'all_data', tmp_path / 'test')
  examples = raw_sources.read(source)
  assert [e.is_test for e in examples] == [False] * 6 + [True] * 6
  assert len(source.checksums()) == 4


def test_training_folder_within_the_test_folder(tmp_path):
  source = _source(tmp_path, train='test/old', test='test')
  for folder in ('test', 'test/old'):
    shutil.copytree(tmp_path / 'all_data', tmp_path / folder)
  assert [e.is_test for e in raw_sources.read(source)] == [False] * 6 + [
    True
  ] * 6


def test_folder_with_the_name_of_a_file(tmp_path):
  source = _source(tmp_path)
  (tmp_path / 'all_data' / 'old.json').mkdir()
  with pytest.raises(errors.DataError, match=r'old\.json is a folder, not a f'):
    source.checksums()


def _write(folder, users, data):
  (folder / 'all_data').mkdir()
  (folder / 'all_data' / 'a.json').write_text(
    json.dumps({'users': users, 'num_samples': [], 'user_data': data})
  )
  return registry.create('femnist', {'folder': str(folder)}, 0)


def test_odd_images_and_labels_are_dead_letters(tmp_path):
  image = [0.5] * 784
  images = [image, image[1:], image, [*image[1:], None], [*image[1:], 'x']]
  images += [7, [image, image[1:]], [*image[1:], 10**400], image]
  images += [[*image[1:], 1.5]]
  labels = [1, 1, 62, 1, 1, 1, 1, 1, 'a', 1]
  source = _write(tmp_path, ['ann'], {'ann': {'x': images, 'y': labels}})
  (block,) = source.blocks()
  sound, dead = cleaning.clean(block, source.read(block), source.features())
  assert len(sound.y) == 1
  assert [letter.position for letter in dead] == [*range(1, 10)]


def test_writer_twice_in_a_file(tmp_path):
  text = json.dumps({'x': [[0.0] * 784], 'y': [1]})
  source = _source(tmp_path)
  (tmp_path / 'all_data' / 'all_data_1.json').write_text(
    f'{{"users": ["ann"], "user_data": {{"ann": {text}, "ann": {text}}}}}'
  )
  with pytest.raises(errors.DataError, match="LEAF's files: 'ann' is there tw"):
    source.blocks()


def test_writer_in_two_files(tmp_path):
  source = _source(tmp_path)
  shutil.copy(
    tmp_path / 'all_data' / 'all_data_0.json', tmp_path / 'all_data' / 'b.json'
  )
  with pytest.raises(
    errors.DataError, match="'f0001_41' is in .*b.json and in"
  ):
    source.blocks()


@pytest.mark.parametrize(
  ('users', 'data', 'text'),
  [
    (['ann'], {}, 'are not those of "user_data"'),
    (['a', 'a'], {'a': {'x': [], 'y': []}}, 'are not those of "user_data"'),
    (['a'], {'a': {'x': [], 'y': [1]}}, "'a' has 0 images and 1 labels"),
    (['a'], {'a': {'x': []}}, "'y'"),
    (['a'], {'a': None}, 'not subscriptable'),
    (
      ['a'],
      {'a': {'x': {'0': []}, 'y': {'0': 1}}},
      "x and y of 'a' are no lists",
    ),
    (['a'], {'a': {'x': 'b', 'y': [1]}}, "x and y of 'a' are no lists"),
    (None, None, "LEAF's files"),
  ],
)
def test_file_of_another_form(tmp_path, users, data, text):
  with pytest.raises(errors.DataError, match=text):
    _write(tmp_path, users, data).blocks()


@pytest.mark.parametrize(
  'content', [b'\xff', b'{"users"', b'[' * 100_000, b'1']
)
def test_file_that_is_no_json(tmp_path, content):
  source = _source(tmp_path)
  (tmp_path / 'all_data' / 'all_data_0.json').write_bytes(content)
  with pytest.raises(errors.DataError, match='all_data_0.json is not'):
    source.blocks()
