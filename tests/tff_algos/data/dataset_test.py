import pathlib
import shutil

import numpy as np
import pytest

from pipelines import build_dataset
from tests.testing import raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import integrity, leases


@pytest.fixture(scope='module')
def built(tmp_path_factory):
  """A dataset of 6 participating and 2 unseen clients in 2 shards."""
  folder = tmp_path_factory.mktemp('data') / 'dataset'
  return build_dataset.build(raw_data.digits_config(), folder).path


@pytest.fixture
def copy(built, tmp_path):
  """A copy that a test may damage."""
  return pathlib.Path(shutil.copytree(built, tmp_path / 'dataset'))


def _version_file(dataset, name):
  (path,) = dataset.glob(f'versions/*/{name}')
  return path


def _flip(path, position):
  content = bytearray(path.read_bytes())
  content[position] ^= 1
  path.write_bytes(content)


def test_clients(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    assert dataset.client_ids == tuple(f'client_{i:05d}' for i in range(6))
    assert dataset.unseen_client_ids == ('unseen_00000', 'unseen_00001')
    assert dataset.source_names == ('upright', 'rotated_90')
    assert dataset.version == (built / 'CURRENT').read_text().strip()


def test_a_version_opens_by_its_folder(built, copy):
  folder = _version_file(copy, 'manifest.json').parent
  (copy / 'CURRENT').write_text('another\n')
  with (
    dataset_lib.FederatedDataset.open(built) as expected,
    dataset_lib.FederatedDataset.open_folder(folder) as dataset,
  ):
    assert dataset.version == expected.version
    np.testing.assert_array_equal(dataset.held_out(1).x, expected.held_out(1).x)
  _flip(_version_file(copy, 'train-00000*'), 9000)
  with pytest.raises(errors.DataError, match='is damaged: its SHA-256'):
    dataset_lib.FederatedDataset.open_folder(folder)
  dataset_lib.FederatedDataset.open_folder(folder, verify=False).close()


def test_a_link_to_a_version_opens_that_version(copy, tmp_path):
  folder = _version_file(copy, 'manifest.json').parent
  link = tmp_path / 'link'
  link.symlink_to(folder)
  (copy / 'CURRENT').write_text('another\n')
  with dataset_lib.FederatedDataset.open(link) as dataset:
    assert (dataset.version, dataset.path) == (folder.name, folder.resolve())
    with leases.forbid(folder) as is_free:
      assert not is_free


def test_a_version_is_held_until_it_is_closed(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    with leases.forbid(dataset.path) as is_free:
      assert not is_free
  with leases.forbid(dataset.path) as is_free:
    assert is_free


def test_a_version_that_is_retired_while_it_is_opened_is_looked_for_again(
  built, monkeypatch
):
  retired = built / 'versions' / 'retired'
  found = iter([retired, integrity.find_current(built)])
  monkeypatch.setattr(integrity, 'find_current', lambda _: next(found))
  with dataset_lib.FederatedDataset.open(built) as dataset:
    assert dataset.version == dataset.path.name != retired.name


@pytest.mark.parametrize('split', ['train', 'validation', 'test'])
def test_examples_have_the_promised_shapes(built, split):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    sizes = dataset.num_examples(split)
    assert sizes.dtype == np.int64
    assert sizes.shape == (6,)
    for client_id, size in zip(dataset.client_ids, sizes, strict=True):
      examples = dataset.examples(client_id, split)
      assert examples.num_examples == size
      assert examples.x.shape == (size, 8, 8, 1)
      assert examples.x.dtype == np.float32
      assert examples.y.dtype == np.int32
      assert examples.source.dtype == np.int32
      assert 0 <= examples.x.min() <= examples.x.max() <= 1


def test_unseen_clients_have_examples(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    sizes = [
      dataset.examples(client_id, 'train').num_examples
      for client_id in dataset.unseen_client_ids
    ]
    np.testing.assert_array_equal(
      dataset.num_examples('train', 'unseen'), sizes
    )
    np.testing.assert_allclose(
      dataset.true_mixture('unseen'), [[0.1, 0.9], [0.9, 0.1]]
    )


def test_true_mixture_is_what_clients_have(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    mixture = dataset.true_mixture()
    np.testing.assert_allclose(mixture, [[0.1, 0.9]] * 3 + [[0.9, 0.1]] * 3)
    for client_id, shares in zip(dataset.client_ids, mixture, strict=True):
      source = dataset.examples(client_id, 'train').source
      counts = np.bincount(source, minlength=2)
      assert np.all(np.abs(counts - shares * len(source)) < 1)


def test_nothing_else_was_planted(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    assert dataset.true_clusters() is None
    assert dataset.true_clusters('unseen') is None
    assert dataset.true_label_mixture() is None


@pytest.fixture(scope='module')
def grouped(tmp_path_factory):
  """A dataset of two groups with classes of their own and shared tests."""
  config = raw_data.digits_config(
    distributions={},
    partition={
      'law': 'class_groups',
      'num_clients': 4,
      'num_unseen_clients': 2,
      'options': {'class_groups': ((0, 1, 2), (5, 6))},
    },
    sizes={},
    splits={'client_test': 'all_of_classes'},
  )
  folder = tmp_path_factory.mktemp('data') / 'dataset'
  return build_dataset.build(config, folder).path


def test_planted_clusters_are_what_clients_have(grouped):
  with dataset_lib.FederatedDataset.open(grouped) as dataset:
    assert dataset.true_mixture() is None
    np.testing.assert_array_equal(dataset.true_clusters(), [0, 0, 1, 1])
    np.testing.assert_array_equal(dataset.true_clusters('unseen'), [0, 1])
    assert dataset.manifest['planted'] == {'class_groups': [[0, 1, 2], [5, 6]]}
    labels = dataset.true_label_mixture()
    assert labels.shape == (4, 10)
    for client_id, shares in zip(dataset.client_ids, labels, strict=True):
      y = dataset.examples(client_id, 'train').y
      assert set(y) == set(np.flatnonzero(shares))


def test_shared_tests_are_the_held_out_examples_of_the_classes(grouped):
  with dataset_lib.FederatedDataset.open(grouped) as dataset:
    held_out = dataset.held_out(0)
    for client_id, size, classes in zip(
      dataset.client_ids,
      dataset.num_examples('test'),
      [(0, 1, 2), (0, 1, 2), (5, 6), (5, 6)],
      strict=True,
    ):
      test = dataset.examples(client_id, 'test')
      is_own = np.isin(held_out.y, classes)
      np.testing.assert_array_equal(test.x, held_out.x[is_own])
      np.testing.assert_array_equal(test.y, held_out.y[is_own])
      assert test.num_examples == size == is_own.sum() > 50
      test.x[:] = 0  # A copy.
    unseen = dataset.examples('unseen_00001', 'test')
    assert set(unseen.y) == {5, 6}
    assert unseen.x.max() > 0


def test_shared_tests_are_shown_as_the_client_sees_them(tmp_path):
  config = raw_data.digits_config(
    partition={
      'law': 'shards',
      'num_clients': 10,
      'options': {'shards_per_client': 2},
    },
    sizes={},
    splits={'client_test': 'all_of_classes'},
  )
  build_dataset.build(config, tmp_path)
  with dataset_lib.FederatedDataset.open(tmp_path) as dataset:
    sources = dataset.true_mixture().argmax(axis=1)
    assert sorted(sources) == [0] * 5 + [1] * 5
    for client_id, source, size in zip(
      dataset.client_ids, sources, dataset.num_examples('test'), strict=True
    ):
      train = dataset.examples(client_id, 'train')
      test = dataset.examples(client_id, 'test')
      assert set(train.source) == set(test.source) == {source}
      assert set(test.y) == set(train.y)
      assert test.num_examples == size


@pytest.mark.parametrize('difference', [1, -1])
def test_shared_test_that_does_not_fit_the_table(grouped, tmp_path, difference):
  copy = pathlib.Path(shutil.copytree(grouped, tmp_path / 'dataset'))
  with dataset_lib.FederatedDataset.open(copy, verify=False) as dataset:
    dataset._counts['test'] = dataset._counts['test'] + difference
    with pytest.raises(errors.DataError, match="client's part of .* says"):
      dataset.examples('client_00000', 'test')


def test_held_out_shows_the_same_images_turned(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    upright, rotated = dataset.held_out(0), dataset.held_out(1)
    np.testing.assert_array_equal(np.rot90(upright.x, axes=(1, 2)), rotated.x)
    np.testing.assert_array_equal(upright.y, rotated.y)
    assert set(upright.source) == {0}
    assert set(rotated.source) == {1}


def test_arrays_may_be_changed(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    for array in dataset.examples('client_00000', 'train'):
      array[:] = 0


def test_unknown_client(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    with pytest.raises(
      errors.DataError, match="unknown client id 'bob'.*'client_00000'"
    ):
      dataset.examples('bob', 'train')


def test_unknown_split(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    with pytest.raises(errors.DataError, match="unknown split 'val'.*validat"):
      dataset.examples('client_00000', 'val')
    with pytest.raises(errors.DataError, match="unknown split 'val'"):
      dataset.num_examples('val')


@pytest.mark.parametrize('index', [-1, 2])
def test_unknown_source_distribution(built, index):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    with pytest.raises(errors.DataError, match='there are 2: upright'):
      dataset.held_out(index)


def test_flipped_byte_in_a_shard_is_found_at_opening(copy):
  path = _version_file(copy, 'train-00001*')
  _flip(path, 1000)
  with pytest.raises(errors.DataError, match='train-00001-of-00002.*damaged'):
    dataset_lib.FederatedDataset.open(copy)


def _read_all(path):
  with dataset_lib.FederatedDataset.open(path, verify=False) as dataset:
    return [
      array.tobytes()
      for client_id in dataset.client_ids
      for array in dataset.examples(client_id, 'train')
    ]


def test_flipped_byte_that_nobody_looked_for_never_changes_examples(copy):
  path = _version_file(copy, 'train-00000*')
  content = path.read_bytes()
  whole = _read_all(copy)
  num_found = 0
  for position in range(0, len(content), 251):
    path.write_bytes(content)
    _flip(path, position)
    try:
      # Some bytes are padding.
      assert _read_all(copy) == whole
    except errors.DataError as error:
      assert 'train-00000' in str(error)
      num_found += 1
  assert num_found >= 10


def test_shard_of_garbage_is_found_in_reading(copy):
  path = _version_file(copy, 'held_out-00000*')
  path.write_bytes(bytes(path.stat().st_size))
  with dataset_lib.FederatedDataset.open(copy, verify=False) as dataset:
    with pytest.raises(errors.DataError, match='held_out-00000.* is damaged'):
      dataset.held_out(0)


def test_swapped_shards_are_found_in_reading(copy):
  first = _version_file(copy, 'train-00000*')
  second = _version_file(copy, 'validation-00000*')
  first.write_bytes(second.read_bytes())
  with dataset_lib.FederatedDataset.open(copy, verify=False) as dataset:
    with pytest.raises(errors.DataError, match='says'):
      dataset.examples('client_00000', 'train')


def test_missing_shard(copy):
  _version_file(copy, 'test-00001*').unlink()
  with pytest.raises(errors.DataError, match='test-00001-of-00002.*is missing'):
    dataset_lib.FederatedDataset.open(copy, verify=False)
