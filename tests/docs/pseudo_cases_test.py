import collections

import numpy as np

from docs.reproduction import pseudo_cases
from pipelines.sources import registry
from tests.testing import raw_data, raw_sources


def test_groups_of_a_letter_become_its_cases(tmp_path):
  """Three filled squares of each letter and two frames: the lower case."""
  images = np.zeros((26 * 5, 28, 28), np.uint8)
  images[:, 4:24, 4:24] = 200
  is_frame = np.arange(len(images)) % 5 >= 3
  images[is_frame, 6:22, 6:22] = 0
  images[:, 0, 1] = np.arange(len(images))
  for part, order in (('train', 1), ('test', -1)):
    stem = f'emnist-letters-{part}'
    labels = np.repeat(np.arange(1, 27), 5)
    raw_data.write_idx(tmp_path / f'{stem}-images-idx3-ubyte', images[::order])
    raw_data.write_idx(tmp_path / f'{stem}-labels-idx1-ubyte', labels[::order])

  pseudo_cases.write(tmp_path, tmp_path / 'out')

  options = {'split': 'byclass', 'cases_are': 'distributions'}
  source = registry.create(
    'emnist', {'folder': str(tmp_path / 'out')} | options, 0
  )
  found = collections.Counter()
  for example in raw_sources.read(source):
    # Upright, the pixel that numbers the images is at the left.
    number = int(example.x[1, 0, 0])
    assert example.y == number // 5
    assert example.native_source == (0 if is_frame[number] else 1)
    found[number, example.is_test] += 1
  assert found == {(n, is_test): 1 for n in range(130) for is_test in (0, 1)}
