import pathlib
import shutil

import numpy as np
import pytest

from pipelines import build_dataset
from tests.testing import raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib


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
    np.testing.assert_array_equal(dataset.num_unseen_examples('train'), sizes)
    np.testing.assert_allclose(
      dataset.true_unseen_mixture(), [[0.1, 0.9], [0.9, 0.1]]
    )


def test_true_mixture_is_what_clients_have(built):
  with dataset_lib.FederatedDataset.open(built) as dataset:
    mixture = dataset.true_mixture()
    np.testing.assert_allclose(mixture, [[0.1, 0.9]] * 3 + [[0.9, 0.1]] * 3)
    for client_id, shares in zip(dataset.client_ids, mixture, strict=True):
      source = dataset.examples(client_id, 'train').source
      counts = np.bincount(source, minlength=2)
      assert np.all(np.abs(counts - shares * len(source)) < 1)


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


def test_half_written_dataset(copy):
  (copy / 'CURRENT').unlink()
  with pytest.raises(errors.DataError, match='CURRENT, which is written last'):
    dataset_lib.FederatedDataset.open(copy)
