import numpy as np
import pytest
import tensorflow as tf

from pipelines.sources import registry
from tests.testing import raw_sources
from tff_algos.core import errors


def test_images_by_writer(tmp_path):
  source = registry.create(
    'federated_emnist', raw_sources.write_federated_emnist(tmp_path), 0
  )
  examples = raw_sources.read(source)
  train = [(e.client, e.y) for e in examples if not e.is_test]
  assert train == [
    *(('f0', 0), ('f1', 7), ('f1', 8), ('f2', 14), ('f2', 15), ('f2', 16))
  ]
  assert [(e.client, e.y) for e in examples if e.is_test] == [
    *(('f0', 0), ('f1', 1), ('f2', 2))
  ]
  assert [e.group for e in examples] == [e.client for e in examples]
  assert source.features().x_range == (0, 1)
  image = examples[1].x
  assert image.shape == source.features().x_shape == (28, 28, 1)
  assert image[0, 0, 0] == np.float32(1 / 8)
  # The last pixel in reading order.
  assert image[27, 27, 0] == 1
  assert source.features().num_classes == 62


def test_record_without_an_image_is_a_problem(tmp_path):
  raw_sources.write_database(
    tmp_path / 'emnist_all.sqlite', {'f0': {'train': [tf.train.Example()]}}
  )
  source = registry.create('federated_emnist', {'folder': str(tmp_path)}, 0)
  (example,) = source.read(source.blocks()[0])
  assert (
    str(example.problem) == 'there are 0 pixels and 0 labels, not 784 and 1'
  )


def test_bad_options():
  with pytest.raises(errors.ConfigError, match='num_classes'):
    registry.create('federated_emnist', {'folder': 'x', 'num_classes': 26}, 0)
