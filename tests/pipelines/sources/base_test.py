import itertools

import numpy as np
import pytest

from pipelines.sources import base, registry
from tff_algos.core import errors


def test_blocks_cover_each_part_once():
  size = base.BLOCK_SIZE
  source = base.Source(None, 0)
  source._sizes = lambda: {'c': 3, 'b': 0, 'a': 2 * size + 1}
  assert source.blocks() == [
    base.Block('c', 0, 3),
    base.Block('a', 0, size),
    base.Block('a', size, 2 * size),
    base.Block('a', 2 * size, 2 * size + 1),
  ]


def test_array_checksum_sees_values_shape_and_dtype():
  x = np.arange(6, dtype=np.int32)
  arrays = (x, x + 1, x.reshape(2, 3), x.astype(np.int64))
  assert len({base.array_sha256(array) for array in arrays}) == 4
  assert base.array_sha256(x) == base.array_sha256(x.copy())


def test_images_are_read_as_values_from_0_to_1():
  features = base.image_features((2, 2), 10)
  assert np.float32(255) * np.float32(features.x_scale) == 1


@pytest.mark.parametrize(
  ('start', 'stop', 'expected'),
  [
    (0, 2, [(1, 0, 2)]),
    (1, 4, [(1, 1, 3), (4, 0, 1)]),
    (3, 5, [(4, 0, 2)]),
    (0, 6, [(1, 0, 3), (4, 0, 2), (5, 0, 1)]),
  ],
)
def test_runs_of_a_block(start, stop, expected):
  """Containers of 0, 3, 0, 0, 2, 1 and 0 examples."""
  found = base.runs([0, 3, 0, 0, 2, 1, 0], base.Block('a', start, stop))
  assert list(found) == expected


def test_runs_of_all_blocks_cover_every_example_once():
  generator = np.random.default_rng(0)
  for _ in range(50):
    sizes = generator.integers(0, 5, 20).tolist()
    cuts = np.unique(generator.integers(0, sum(sizes) + 1, 6))
    cuts = [0, *cuts.tolist(), sum(sizes)]
    found = [
      (run.index, i)
      for start, stop in itertools.pairwise(cuts)
      for run in base.runs(sizes, base.Block('a', start, stop))
      for i in range(run.start, run.stop)
    ]
    assert found == [(k, i) for k, n in enumerate(sizes) for i in range(n)]


def test_kinds_of_features():
  tokens = base.token_features(5, 9)
  assert (tokens.x_dtype, tokens.x_shape, tokens.num_classes) == (
    'int32',
    (5,),
    9,
  )
  assert base.vector_features(3).task == 'regression'
  assert base.vector_features(3, 2).task == 'classification'


def test_generated_sources_tell_seeds_and_options_apart():
  def checksum(seed, **options):
    return registry.create('two_gaussians', options, seed).checksums()

  assert checksum(0) == checksum(0)
  assert (
    len({str(checksum(0)), str(checksum(1)), str(checksum(0, mean=1.0))}) == 3
  )


def test_checksums_of_files_are_named_without_folders(tmp_path):
  paths = [tmp_path / name for name in ('a/x', 'a/y', 'b/x', 'c/x')]
  for path in paths:
    path.parent.mkdir(exist_ok=True)
    path.write_text(str(path))
  found = base.file_checksums([*paths, paths[1]])  # A file twice is one file.
  assert [*found] == ['x', 'y', '2/x', '3/x']
  assert len({*found.values()}) == 4


def test_checksum_of_a_link_to_nothing(tmp_path):
  (tmp_path / 'link').symlink_to('nothing')
  with pytest.raises(errors.DataError, match='raw file .*/link is gone'):
    base.file_checksums([tmp_path / 'link'])
