import numpy as np

from pipelines.sources import base


def test_blocks_cover_a_part_once():
  size = base.BLOCK_SIZE
  assert base.cut_blocks('a', 0) == []
  assert base.cut_blocks('a', 3) == [base.Block('a', 0, 3)]
  assert base.cut_blocks('a', 2 * size + 1) == [
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
