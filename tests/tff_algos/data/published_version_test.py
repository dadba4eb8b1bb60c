import filecmp
import hashlib
import json
import os
import shutil

import numpy as np
import pytest

from tests.testing import published as publishing
from tests.testing import s3_server
from tff_algos.core import cache_folder, errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import pointer, snapshots


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  return tmp_path / 'cache' / 'stores'


def _shard_object(names, shard):
  (name,) = (one for one in names if one.endswith(f'{shard}.array_record'))
  return names[name]


@pytest.fixture
def published(request, digits_dataset):
  address = f'memory://bucket/{request.node.name}'
  names = publishing.publish(digits_dataset, address)
  return address, objects_lib.Objects(address), names


def _everything(dataset):
  """Returns all examples of all clients, and the held-out ones."""
  return [
    *(
      dataset.examples(client_id, split)
      for client_id in (*dataset.client_ids, *dataset.unseen_client_ids)
      for split in ('train', 'validation', 'test')
    ),
    *(dataset.held_out(i) for i in range(dataset.schema.num_sources)),
  ]


def _check_same(found, expected):
  assert len(found) == len(expected) > 20
  for one, other in zip(found, expected, strict=True):
    for array, same in zip(one, other, strict=True):
      np.testing.assert_array_equal(array, same)


def test_the_tables_of_a_killed_reader_are_removed_and_no_others(
  published, cache
):
  with dataset_lib.FederatedDataset.open(published[0]) as opened:
    (held,) = cache.iterdir()
    killed = shutil.copytree(held, cache / f'{held.name}_killed')
    foreign = cache / 'version-of-somebody-else'
    foreign.touch()
    with dataset_lib.FederatedDataset.open(published[0]):
      assert not killed.exists()
      foreign.unlink()
      assert len([*cache.iterdir()]) == 2
    assert opened.path.is_dir()
  assert os.listdir(cache) == []


@pytest.mark.parametrize('part', ['', 'dataset'])
def test_a_published_dataset_is_read_as_the_local_one(
  digits_dataset, tmp_path, part, cache
):
  address = f'memory://bucket/same{part}'
  publishing.publish(digits_dataset / part, address)
  layout.write_address(tmp_path / 'dataset', address)
  with (
    dataset_lib.FederatedDataset.open(digits_dataset / 'dataset') as local,
    dataset_lib.FederatedDataset.open(tmp_path / 'dataset') as opened,
  ):
    assert opened.manifest == local.manifest
    assert (opened.address, local.address) == (address, None)
    assert opened.client_ids == local.client_ids
    _check_same(_everything(opened), _everything(local))
    names = {'manifest.json', 'clients.parquet'}
    assert names <= {*os.listdir(opened.path)}
    assert not [*opened.path.glob('*.array_record')]
    assert filecmp.cmpfiles(local.path, opened.path, names, False)[0] == [
      *names
    ]
  assert os.listdir(cache) == []


def test_a_version_is_read_to_its_end_when_another_is_published(
  digits_dataset, published, tmp_path
):
  address, objects, _ = published
  with dataset_lib.FederatedDataset.open(digits_dataset / 'dataset') as local:
    expected = _everything(local)
  changed = shutil.copytree(digits_dataset, tmp_path / 'changed')
  with dataset_lib.FederatedDataset.open(address) as opened:
    (changed / 'dataset' / layout.CURRENT).write_text('other\n')
    (version,) = changed.glob('dataset/versions/*')
    version.rename(version.with_name('other'))
    publishing.publish(changed, address)
    _check_same(_everything(opened), expected)
  # It is what a damaged publication looks like, too.
  with pytest.raises(errors.DataError, match="belongs to version .* not to 'o"):
    dataset_lib.FederatedDataset.open(address)
  assert objects.list()


def test_a_removed_version_is_one_clear_error(published):
  address, objects, names = published
  with dataset_lib.FederatedDataset.open(address) as opened:
    client_id = opened.client_ids[0]
    objects.delete(_shard_object(names, 'train-00000-of-00002'))
    with pytest.raises(
      errors.InfrastructureError, match='this version removed. Open it again'
    ):
      opened.examples(client_id, 'train')
    assert opened.examples(client_id, 'test').num_examples


def test_an_object_that_is_missing_or_another_is_refused(published):
  address, objects, names = published
  lease = pointer.Lease(objects, 'test')
  snapshot = snapshots.read(objects, lease.snapshot)
  files = dict(snapshot.files)
  (shard,) = (name for name in files if 'train-00000' in name)
  files[shard] = {**files[shard], 'size_bytes': 5}
  (other,) = (name for name in files if name.endswith('clients.parquet'))
  content = json.dumps(snapshot._replace(files=files)._asdict()).encode()
  sha256 = hashlib.sha256(content).hexdigest()
  objects.write(f'{snapshots.SNAPSHOTS}/{sha256}', content)
  lease.publish(sha256)
  with pytest.raises(errors.DataError, match='train-00000.* is missing or is'):
    dataset_lib.FederatedDataset.open(address)
  objects.delete(names[other])
  with pytest.raises(errors.DataError, match='which the published snapshot'):
    dataset_lib.FederatedDataset.open(address)


def test_addresses_without_a_dataset_say_what_to_do(published):
  with pytest.raises(errors.DataError, match='no federated dataset is publish'):
    dataset_lib.FederatedDataset.open('memory://bucket/nothing')
  with pytest.raises(errors.ConfigError, match='unknown scheme'):
    dataset_lib.FederatedDataset.open('http://x/y')
  with pytest.raises(errors.DataError, match='no version'):
    dataset_lib.FederatedDataset.open(published[0], as_of='2020-01-01')
  with pytest.raises(
    errors.DataError, match="has no version 'v'; it was remov"
  ):
    dataset_lib.FederatedDataset.open(published[0], version='v')


def test_records_are_ranges_of_a_real_store_with_faults(
  digits_dataset, s3, monkeypatch
):
  address = f's3://{s3_server.BUCKET}/ranges'
  names = publishing.publish(digits_dataset, address)
  failed = [0]

  def fault(method, path):
    failed[0] += 1
    return {2: 'status', 4: 'torn', 5: 'lost'}.get(failed[0] % 7)

  with dataset_lib.FederatedDataset.open(digits_dataset / 'dataset') as local:
    expected = _everything(local)
  monkeypatch.setattr(s3, 'fault', fault)
  s3.requests.clear()
  with dataset_lib.FederatedDataset.open(address) as opened:
    _check_same(_everything(opened), expected)
  train = _shard_object(names, 'train-00000-of-00002')
  ranges = [header for _, path, header in s3.requests if path.endswith(train)]
  assert ranges and all(one.startswith('bytes=') for one in ranges)
  assert failed[0] > 20
