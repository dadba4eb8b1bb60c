import numpy as np
import pytest

from pipelines import build_dataset
from tests.testing import raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.runtimes import client_sources


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  folder = tmp_path_factory.mktemp('dataset')
  build_dataset.build(raw_data.digits_config(), folder)
  with dataset_lib.FederatedDataset.open(folder) as opened:
    yield opened


@pytest.mark.parametrize('split', schema.SPLITS)
@pytest.mark.parametrize('unseen', [False, True])
def test_source_reads_its_split_of_its_clients(dataset, split, unseen):
  source = client_sources.DatasetSource(dataset, split, unseen=unseen)
  ids = dataset.unseen_client_ids if unseen else dataset.client_ids
  assert source.population.client_ids == ids
  assert len(ids) == (2 if unseen else 6)
  for index, client_id in enumerate(ids):
    expected = dataset.examples(client_id, split)
    np.testing.assert_equal(source.examples(index), expected)
    assert source.population.num_examples[index] == len(expected.y)


def test_cache_reads_once_and_forgets_what_was_not_asked_for_longest(
  dataset, monkeypatch
):
  class Counting:
    client_ids = dataset.client_ids
    shards_of = dataset.shards_of

    def __init__(self):
      self.read = []

    def num_examples(self, split):
      return dataset.num_examples(split)

    def examples(self, client_id, split):
      self.read.append(client_id)
      return dataset.examples(client_id, split)

  ids = dataset.client_ids
  sizes = [
    sum(array.nbytes for array in dataset.examples(one, schema.TRAIN))
    for one in ids
  ]
  counting = Counting()
  room = max(sizes[0] + sizes[1], sizes[2])
  monkeypatch.setattr(client_sources, '_CACHE_BYTES', room)
  source = client_sources.DatasetSource(counting, schema.TRAIN)
  everyone = list(source.stream())
  np.testing.assert_equal(everyone[2], dataset.examples(ids[2], schema.TRAIN))
  assert counting.read == list(ids)  # And none of them is cached.
  counting.read.clear()
  source.examples(0)
  source.examples(1)
  source.examples(0)
  assert counting.read == [ids[0], ids[1]]
  source.examples(2)
  source.examples(2)
  source.examples(1)
  assert counting.read == [ids[0], ids[1], ids[2], ids[1]]


def test_cache_of_no_bytes_still_serves(dataset, monkeypatch):
  monkeypatch.setattr(client_sources, '_CACHE_BYTES', 0)
  source = client_sources.DatasetSource(dataset, schema.TRAIN)
  for index in (0, 1, 0):
    expected = dataset.examples(dataset.client_ids[index], schema.TRAIN)
    np.testing.assert_equal(source.examples(index), expected)


def test_unknown_split_is_refused(dataset):
  with pytest.raises(errors.DataError, match="unknown split 'tests'"):
    client_sources.DatasetSource(dataset, 'tests')


@pytest.mark.parametrize('piece_rows', [1, 50, 10**6])
def test_pieces_of_the_held_out_sets_are_the_sets(
  dataset, piece_rows, monkeypatch
):
  monkeypatch.setattr(client_sources, '_PIECE_ROWS', piece_rows)
  source = client_sources.HeldOutSource(dataset)
  sizes = source.population.num_examples
  assert sizes.max() <= piece_rows
  assert len(set(source.population.client_ids)) == len(sizes)
  for index in range(2):
    pieces = np.flatnonzero(source.source_index == index)
    joined = [
      np.concatenate(arrays)
      for arrays in zip(*map(source.examples, pieces), strict=True)
    ]
    np.testing.assert_equal(joined, list(dataset.held_out(index)))


def test_arrays_are_clients():
  source = client_sources.ArraySource(
    {
      'bob': (np.eye(2), [1, 2]),
      'ann': (np.ones((1, 2), np.uint8), [0.5], [3]),
    }
  )
  assert source.population.client_ids == ('bob', 'ann')
  assert source.population.num_examples.tolist() == [2, 1]
  bob, ann = map(source.examples, range(2))
  assert [one.dtype.name for one in bob] == ['float32', 'int32', 'int32']
  assert [one.dtype.name for one in ann] == ['int32', 'float32', 'int32']
  assert bob.source.tolist() == [0, 0] and ann.source.tolist() == [3]


def test_arrays_never_change():
  x, y = np.zeros((2, 3), np.float32), np.zeros(2, np.int32)
  y.flags.writeable = False
  found = client_sources.ArraySource({'ann': (x, y)}).examples(0)
  x[:] = 1
  assert not found.x.any()
  assert np.shares_memory(found.y, y)  # Large ones need not be copied.
  for array in found:
    with pytest.raises(ValueError, match='read-only'):
      array[0] = 1


def test_ids_that_are_no_strings_are_refused():
  with pytest.raises(errors.DataError, match="client id 7 is int.* take '7'"):
    client_sources.ArraySource({7: (np.eye(2), [1, 2])})


@pytest.mark.parametrize(
  ('arrays', 'words'),
  [
    ((np.eye(2), [1, 2, 3]), r'lengths \[2, 3\]'),
    ((np.eye(2), [1, 2], [0]), r'lengths \[2, 2, 1\]'),
    ((np.eye(2),), '1 arrays; give features'),
    (3, '0 arrays; give features'),
    (([[1, 2], [3]], [1, 2]), 'examples that differ in shape: .*inhomogeneous'),
    ((np.eye(2), ['a', 'b']), 'array of <U1.*give floats or integers'),
    ((np.eye(2), 1), r'shape \(\)'),
    ((np.eye(2), [2**32 + 1, 2]), '4294967297, which int32 cannot hold'),
    (([[1e300], [np.inf]], [1, 2]), r'1e\+300, which float32 cannot hold'),
  ],
)
def test_arrays_that_are_no_examples_are_refused(arrays, words):
  with pytest.raises(errors.DataError, match=f"client 'ann' has .*{words}"):
    client_sources.ArraySource({'ann': arrays})
