import os
import pathlib

import numpy as np
import pytest

from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors

_CIFAR10 = pathlib.Path(os.environ.get('CIFAR10_DIR', '../shared/data/cifar10'))


def _source(folder, **more):
  return registry.create('cifar', {'folder': str(folder), **more}, 0)


def test_planes_become_channels(tmp_path):
  """A record by hand: red counts up, green is 7, blue is 9."""
  red = np.arange(1024) % 251
  record = np.concatenate([[4], red, np.full(1024, 7), np.full(1024, 9)])
  (tmp_path / 'batch').write_bytes(record.astype(np.uint8).tobytes())
  source = _source(tmp_path, train_files=('batch',), test_files=())
  (example,) = raw_sources.read(source)
  assert example.y == 4
  assert example.x.shape == source.features().x_shape == (32, 32, 3)
  assert example.x[0, :3].tolist() == [[0, 7, 9], [1, 7, 9], [2, 7, 9]]
  assert example.x[1, 0].tolist() == [32, 7, 9]
  assert not source.has_test_split()


def test_original_names_of_cifar10(tmp_path):
  names = [f'data_batch_{i}.bin' for i in range(1, 6)] + ['test_batch.bin']
  for label, name in enumerate(names):
    (tmp_path / name).write_bytes(bytes([label]) + bytes(3072))
  source = _source(tmp_path)
  examples = raw_sources.read(source)
  assert [e.y for e in examples] == list(range(6))
  assert [e.is_test for e in examples] == [False] * 5 + [True]
  assert source.features().num_classes == 10
  assert sorted(source.checksums()) == sorted(names)


@pytest.mark.parametrize(
  ('labels', 'byte', 'num_classes'), [('coarse', 0, 20), ('fine', 1, 100)]
)
def test_labels_of_cifar100(tmp_path, labels, byte, num_classes):
  options = raw_sources.write_cifar(tmp_path)
  records = np.fromfile(tmp_path / 'train.bin', np.uint8).reshape(3, -1)
  source = registry.create('cifar', options | {'labels': labels}, 0)
  examples = raw_sources.read(source)
  assert [e.y for e in examples[:3]] == records[:, byte].tolist()
  assert source.features().num_classes == num_classes
  assert [e.is_test for e in examples] == [False] * 3 + [True] * 3


@pytest.mark.parametrize(('labels', 'count'), [('coarse', 20), ('fine', 100)])
def test_classes_have_the_names_of_the_file_beside(tmp_path, labels, count):
  options = raw_sources.write_cifar(tmp_path) | {'labels': labels}
  source = registry.create('cifar', options, 0)
  checksums = source.checksums()
  assert source.facts() == {}
  names = [f'{labels}_{i}' for i in range(count)]
  path = tmp_path / f'{labels}_label_names.txt'
  path.write_text('\n'.join(names) + '\n\n')
  assert source.facts() == {'class_names': names}
  assert source.checksums() == checksums  # Names are no part of the version.
  path.write_text('\n'.join(names[1:]))
  with pytest.raises(errors.DataError, match=f'{count} classes.* {count - 1}'):
    source.facts()


def test_names_of_cifar10(tmp_path):
  (tmp_path / 'batches.meta.txt').write_text('\n'.join('abcdefghij') + '\n\n')
  assert _source(tmp_path).facts() == {'class_names': [*'abcdefghij']}


def test_cut_off_file(tmp_path):
  options = raw_sources.write_cifar(tmp_path)
  path = tmp_path / 'train.bin'
  path.write_bytes(path.read_bytes()[:-1])
  with pytest.raises(errors.DataError, match='9221 bytes.* records of 3074'):
    registry.create('cifar', options, 0).blocks()


@pytest.mark.parametrize(
  ('more', 'text'),
  [
    ({'dataset': 'cifar20'}, "'cifar10', 'cifar100'"),
    ({'labels': 'coarse'}, 'labels'),
    ({'train_files': ()}, 'at least one file'),
  ],
)
def test_bad_options(more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _source('x', **more)


def test_real_cifar10(tmp_path):
  """Filter decomposition, on the 500 first images of the test batch."""
  image = pytest.importorskip('PIL.Image')
  if not _CIFAR10.is_dir():
    pytest.skip(f'no CIFAR-10 at {_CIFAR10}; set CIFAR10_DIR to its folder')
  with image.open(_CIFAR10 / 'test_000.webp') as strip:
    images = np.asarray(strip.convert('RGB')).reshape(500, 32, 32, 3)
  labels = np.fromfile(_CIFAR10 / 'labels.bin', np.uint8)[50_000:50_500]
  planes = images.transpose(0, 3, 1, 2).reshape(500, -1)
  np.concatenate([labels[:, None], planes], axis=1).tofile(tmp_path / 'batch')
  examples = raw_sources.read(
    _source(tmp_path, train_files=('batch',), test_files=())
  )
  np.testing.assert_array_equal(np.stack([e.x for e in examples]), images)
  # The test batch begins with a cat, two ships and an airplane.
  assert [e.y for e in examples[:4]] == [3, 8, 8, 0]
