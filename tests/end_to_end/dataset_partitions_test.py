"""Whole builds of every law that divides classes, and of pooled test splits."""

import numpy as np
import pytest

from pipelines import build_dataset
from tests.testing import raw_data
from tff_algos.data import dataset as dataset_lib

_DIVISIONS = {
  'shards': {'num_clients': 20, 'options': {'shards_per_client': 2}},
  'classes_per_client': {
    'num_clients': 12,
    'options': {'classes_per_client': 3},
  },
  'dirichlet': {'num_clients': 6, 'options': {'concentration': 0.3}},
  'class_groups': {'num_clients': 8, 'options': {'group_sizes': (2, 2, 3, 3)}},
  'consecutive_classes': {
    'num_clients': 5,
    'options': {'offset': 0, 'reserve': 40},
  },
}


@pytest.mark.parametrize('law', sorted(_DIVISIONS))
def test_classes_divided_over_clients(tmp_path, law):
  config = raw_data.digits_config(
    distributions={},
    partition={'law': law, **_DIVISIONS[law]},
    sizes={},
    splits={
      'test_ratio': 1 / 3,
      'split_by': 'client',
      'held_out_fraction': 0.0,
    },
  )
  result = build_dataset.build(config, tmp_path)
  with dataset_lib.FederatedDataset.open(tmp_path) as dataset:
    train, test = (dataset.num_examples(split) for split in ('train', 'test'))
    np.testing.assert_array_equal(train, (train + test) * 3 // 4)
    used = result.manifest['counters']['used_by_clients']
    assert train.sum() + test.sum() == used
    assert (used == 1797) == (law != 'consecutive_classes')
    labels = dataset.true_label_mixture()
    images = []
    for client_id, shares in zip(dataset.client_ids, labels, strict=True):
      for split in ('train', 'test'):
        examples = dataset.examples(client_id, split)
        assert set(examples.y) <= set(np.flatnonzero(shares))
        images += [x.tobytes() for x in examples.x]
  assert len(set(images)) == len(images) == used


def test_official_test_split_is_pooled(tmp_path):
  raw_data.write_mnist_like(tmp_path, 50, 10)
  config = raw_data.digits_config(
    source={'name': 'idx', 'options': {'folder': str(tmp_path)}},
    partition={'law': 'iid', 'num_clients': 3},
    distributions={},
    sizes={},
    splits={
      'pool_test_split': True,
      'held_out_fraction': 0.0,
      'split_by': 'client',
      'test_ratio': 0.25,
    },
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  assert result.manifest['num_held_out'] == [0]
  assert result.manifest['num_examples']['train']['participating'] == 48
  assert result.manifest['num_examples']['test']['participating'] == 12
