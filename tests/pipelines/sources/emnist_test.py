import os
import pathlib

import numpy as np
import pytest

from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors

_EMNIST = pathlib.Path(os.environ.get('EMNIST_DIR', '../shared/data/emnist'))


def test_images_are_upright(tmp_path):
  """The lit corner is at the bottom left in the files: it was the top right."""
  source = registry.create('emnist', raw_sources.write_emnist(tmp_path), 0)
  image = raw_sources.read(source)[0].x[:, :, 0]
  assert image[0, -1] == 255
  assert image[-1, 0] == 0


def test_by_class_as_it_is_labelled(tmp_path):
  source = registry.create('emnist', raw_sources.write_emnist(tmp_path), 0)
  examples = raw_sources.read(source)
  assert [e.y for e in examples] == [0, 9, 10, 35, 36, 61] * 2
  assert source.features().num_classes == 62
  assert source.native_source_names() is None


def test_cases_as_distributions(tmp_path):
  """FedSoft: 26 labels that A and a share, no digits."""
  labels = [*range(62), 10, 36]
  options = raw_sources.write_emnist(tmp_path, labels)
  source = registry.create(
    'emnist', options | {'cases_are': 'distributions'}, 0
  )
  examples = [e for e in raw_sources.read(source) if not e.is_test]
  assert source.native_source_names() == ('lower', 'upper')
  assert source.features().num_classes == 26
  for native, first in ((0, 36), (1, 10)):
    shown = [e for e in examples if e.native_source == native]
    counts = np.bincount([e.y for e in shown], minlength=26)
    np.testing.assert_array_equal(counts, [2] + [1] * 25)
    # Pixel 5, 5 numbers the images.
    raw = [labels[e.x[5, 5, 0]] for e in shown]
    np.testing.assert_array_equal(raw, [first + e.y for e in shown])


def test_only_by_class_knows_cases():
  with pytest.raises(errors.ConfigError, match="needs split='byclass'"):
    registry.create(
      'emnist',
      {'folder': 'x', 'split': 'letters', 'cases_are': 'distributions'},
      0,
    )


def test_image_of_another_shape_is_malformed(tmp_path):
  options = raw_sources.write_idx(tmp_path)
  for kind in ('images-idx3', 'labels-idx1'):
    for part, old in (('train', 'train'), ('test', 't10k')):
      (path,) = tmp_path.glob(f'{old}-{kind}-ubyte*')
      path.rename(tmp_path / f'emnist-mnist-{part}-{kind}-ubyte{path.suffix}')
  source = registry.create('emnist', options | {'split': 'mnist'}, 0)
  assert raw_sources.read(source)[0].x.shape != source.features().x_shape


@pytest.mark.slow
def test_real_letters():
  """Looked at: upright, and what their labels say; 4,800 of each letter."""
  if not _EMNIST.is_dir():
    pytest.skip(f'no EMNIST at {_EMNIST}; set EMNIST_DIR to its folder')
  source = registry.create('emnist', {'folder': str(_EMNIST)}, 0)
  blocks = source.blocks()
  first = list(source.read(blocks[0]))
  assert ''.join(chr(ord('a') + e.y) for e in first[:10]) == 'wgpowqmkvx'
  # A "t" has more ink in its upper half; lying on its side it has as much.
  ts = np.stack([e.x[:, :, 0] for e in first if e.y == 19]).astype(float)
  assert ts[:, :14].sum() > 1.2 * ts[:, 14:].sum()
  labels = [e.y for block in blocks for e in source.read(block)]
  np.testing.assert_array_equal(np.bincount(labels), [4800 + 800] * 26)
