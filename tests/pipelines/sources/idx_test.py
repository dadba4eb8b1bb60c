import os
import pathlib

import numpy as np
import pytest

from pipelines.sources import registry
from tests.testing import raw_data, raw_sources
from tff_algos.core import errors

_MNIST = pathlib.Path(os.environ.get('MNIST_DIR', '../shared/data/mnist'))
_TRAIN_IMAGES = 'train-images-idx3-ubyte'
_TRAIN_LABELS = 'train-labels-idx1-ubyte'


def _source(folder, **more):
  return registry.create('idx', {'folder': str(folder), **more}, 0)


def test_reads_both_splits(tmp_path):
  arrays = raw_data.write_mnist_like(tmp_path)
  source = _source(tmp_path)
  examples = raw_sources.read(source)
  train = [e for e in examples if not e.is_test]
  test = [e for e in examples if e.is_test]
  np.testing.assert_array_equal(
    np.stack([e.x for e in train])[..., 0], arrays[_TRAIN_IMAGES]
  )
  np.testing.assert_array_equal([e.y for e in train], arrays[_TRAIN_LABELS])
  assert len(test) == 10
  assert source.has_test_split()
  assert source.features().x_shape == (4, 4, 1)
  assert source.features().num_classes == 10


def test_without_test_split(tmp_path):
  raw_data.write_mnist_like(tmp_path)
  source = _source(tmp_path, test_images='', test_labels='')
  assert not source.has_test_split()
  assert len(raw_sources.read(source)) == 50


def test_transpose_and_first_label(tmp_path):
  images = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
  raw_data.write_idx(tmp_path / 'a', images)
  raw_data.write_idx(tmp_path / 'b', np.array([1, 26], np.uint8))
  source = _source(
    tmp_path,
    train_images='a',
    train_labels='b',
    test_images='',
    test_labels='',
    num_classes=26,
    first_label=1,
    transpose=True,
  )
  first, second = raw_sources.read(source)
  assert source.features().x_shape == (3, 2, 1)
  np.testing.assert_array_equal(first.x[..., 0], images[0].T)
  assert (first.y, second.y) == (0, 25)


def test_changed_file_is_read_again(tmp_path):
  arrays = raw_data.write_mnist_like(tmp_path)
  source = _source(tmp_path)
  raw_sources.read(source)
  path = tmp_path / _TRAIN_IMAGES
  raw_data.write_idx(path, 255 - arrays[_TRAIN_IMAGES])
  os.utime(path, ns=(0, 0))
  np.testing.assert_array_equal(
    raw_sources.read(source)[0].x[..., 0], 255 - arrays[_TRAIN_IMAGES][0]
  )
  # A copy that keeps the time, as of rsync, is another file, too.
  raw_data.write_idx(path, arrays[_TRAIN_IMAGES])
  os.utime(path, ns=(0, 0))
  np.testing.assert_array_equal(
    raw_sources.read(source)[0].x[..., 0], arrays[_TRAIN_IMAGES][0]
  )


def test_file_of_another_kind(tmp_path):
  raw_data.write_mnist_like(tmp_path)
  (tmp_path / _TRAIN_IMAGES).write_bytes(b'\x89PNG and so on')
  with pytest.raises(errors.DataError, match="not an IDX file.*'89504e47'"):
    _source(tmp_path).features()


def test_cut_off_file(tmp_path):
  raw_data.write_mnist_like(tmp_path)
  path = tmp_path / _TRAIN_IMAGES
  path.write_bytes(path.read_bytes()[:-1])
  with pytest.raises(errors.DataError, match='cut off or damaged'):
    _source(tmp_path).features()


def test_labels_that_do_not_match(tmp_path):
  arrays = raw_data.write_mnist_like(tmp_path)
  raw_data.write_idx(
    tmp_path / (_TRAIN_LABELS + '.gz'), arrays[_TRAIN_LABELS][:-1]
  )
  with pytest.raises(errors.DataError, match='49 labels for 50 images'):
    raw_sources.read(_source(tmp_path))


def test_one_test_file_alone_is_refused():
  with pytest.raises(errors.ConfigError, match='both or neither'):
    _source('x', test_images='')


@pytest.mark.slow
def test_real_mnist():
  if not _MNIST.is_dir():
    pytest.skip(f'no MNIST at {_MNIST}; set MNIST_DIR to its folder')
  examples = raw_sources.read(_source(_MNIST))
  train = [e.y for e in examples if not e.is_test]
  assert len(examples) == 70_000
  assert train[:5] == [5, 0, 4, 1, 9]
  np.testing.assert_array_equal(
    np.bincount(train),
    [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
  )


@pytest.mark.parametrize(
  ('content', 'text'),
  [
    (bytes([0, 0, 8, 3]), 'ends within its header'),
    (bytes([0, 0, 8, 3]) + bytes(7), 'ends within its header'),
    # 2^32 - 1 to the third power: no whole number of 64 bits.
    (bytes([0, 0, 8, 3]) + b'\xff' * 12, 'should hold .4294967295'),
    (bytes([0, 0, 8, 3, 0, 0, 0, 9, *bytes(8)]), 'images of .0, 0. pixels'),
  ],
)
def test_header_that_cannot_be(tmp_path, content, text):
  raw_data.write_mnist_like(tmp_path)
  (tmp_path / _TRAIN_IMAGES).write_bytes(content)
  with pytest.raises(errors.DataError, match=text):
    _source(tmp_path).features()
