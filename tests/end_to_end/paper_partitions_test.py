"""The papers' partitions of the real MNIST, against the numbers known of them."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset, options
from tff_algos.algorithms.ppfl import affinity
from tff_algos.core import config as config_lib
from tff_algos.data import dataset as dataset_lib

_MNIST = pathlib.Path(os.environ.get('MNIST_DIR', '../shared/data/mnist'))
_FASHION_MNIST = _MNIST.parent / 'fashion_mnist'

pytestmark = [
  pytest.mark.verify,
  pytest.mark.skipif(
    not _MNIST.is_dir(),
    reason='set MNIST_DIR to the folder of the four IDX files of MNIST',
  ),
]


def _build(folder, images=_MNIST, **values):
  source = {'name': 'idx', 'options': {'folder': str(images)}}
  config = config_lib.from_dict(
    options.DatasetConfig, {'source': source, **values}
  )
  build_dataset.build(config, folder)
  return dataset_lib.FederatedDataset.open(folder)


@pytest.mark.parametrize(
  ('images', 'expected'),
  [
    pytest.param(_MNIST, (470, 4122, 47_573), id='MNIST'),
    pytest.param(_FASHION_MNIST, (439, 4148, 49_566), id='Fashion-MNIST'),
  ],
)
def test_cgpfl(tmp_path, images, expected):
  """40 clients with 3 classes each, 75 % of each train."""
  if not images.is_dir():
    pytest.skip(f'{images} is not there')
  law = {
    'law': 'consecutive_classes',
    'num_clients': 40,
    'options': {'offset': 180, 'reserve': 400},
  }
  splits = {'test_ratio': 1 / 3, 'split_by': 'client'}
  with _build(
    tmp_path, images, partition=law, splits=splits, seed=1
  ) as dataset:
    train, test = (dataset.num_examples(split) for split in ('train', 'test'))
    sizes = train + test
    assert (sizes.min(), sizes.max(), sizes.sum()) == expected
    np.testing.assert_array_equal(train, sizes * 3 // 4)
    for k, client_id in enumerate(dataset.client_ids):
      examples = dataset.examples(client_id, 'train')
      assert set(examples.y) == {k % 10, (k + 1) % 10, (k + 2) % 10}
    np.testing.assert_array_equal(dataset.true_clusters(), np.arange(40) % 10)
    assert dataset.manifest['num_held_out'] == [10_000]


def test_ppfl(tmp_path):
  """100 clients in 4 groups over all 70,000 images, 80 % of each train."""
  law = {
    'law': 'class_groups',
    'num_clients': 100,
    'options': {'group_sizes': (2, 2, 3, 3)},
  }
  splits = {
    'test_ratio': 0.25,
    'split_by': 'client',
    'pool_test_split': True,
    'held_out_fraction': 0.0,
  }
  groups = [{6, 0}, {5, 8}, {3, 2, 9}, {1, 4, 7}]
  with _build(tmp_path, partition=law, splits=splits, seed=12345) as dataset:
    train, test = (dataset.num_examples(split) for split in ('train', 'test'))
    sizes = train + test
    assert (sizes.min(), sizes.max(), sizes.sum()) == (525, 880, 70_000)
    np.testing.assert_array_equal(train, sizes * 4 // 5)
    clusters = dataset.true_clusters()
    np.testing.assert_array_equal(clusters, np.repeat(np.arange(4), 25))
    counts = []
    for client_id, cluster in zip(dataset.client_ids, clusters, strict=True):
      labels = dataset.examples(client_id, 'train').y
      assert set(labels) == groups[cluster]
      counts.append(np.bincount(labels, minlength=10))
  _assert_affinity_has_blocks(np.array(counts, np.float32), clusters)


def _assert_affinity_has_blocks(counts, clusters):
  """Clients of two groups have no label in common, those of one nearly all."""
  features = affinity.cosine_features(tf.constant(counts), False)
  found = np.array(features @ tf.transpose(features))
  is_inside = clusters[:, np.newaxis] == clusters
  assert (found[~is_inside] == 0).all()
  assert found[is_inside].min() > 0.95
  # Two of the first group, whose labels are 0 and 6, by hand.
  (a, b), (c, d) = counts[:2, [0, 6]].astype(float)
  expected = (a * c + b * d) / ((a * a + b * b) * (c * c + d * d)) ** 0.5
  np.testing.assert_allclose(found[0, 1], expected, rtol=1e-6)
