import os
import random
import resource
import threading

import pytest
from array_record.python import array_record_module

from tff_algos.core import errors
from tff_algos.data import shards as shards_lib
from tff_algos.stores import cached_object
from tff_algos.stores import objects as objects_lib

_NUM_RECORDS = 24
_RECORD_BYTES = 400_000  # 7 blocks of 64 KiB.
_NAMES = ('a', 'b', 'c')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Three shards of 24 records of 0.4 MB that cannot be compressed."""
  folder = tmp_path_factory.mktemp('shards')
  for name in _NAMES:
    writer = array_record_module.ArrayRecordWriter(
      str(folder / name), 'group_size:1'
    )
    for position in range(_NUM_RECORDS):
      writer.write(_record(name, position))
    writer.close()
  return folder


def _record(name, position):
  return random.Random(f'{name} {position}').randbytes(_RECORD_BYTES)


@pytest.fixture
def objects(request, folder):
  objects = objects_lib.Objects(f'memory://bucket/{request.node.name}')
  for name in _NAMES:
    objects.upload(folder / name, name)
  return objects


@pytest.fixture
def published(objects, tmp_path, request):
  cache_bytes = getattr(request, 'param', 1 << 30)
  opened = shards_lib.PublishedShards(
    lambda name: cached_object.CachedObject(
      objects, name, objects.size(name), tmp_path
    ),
    {name: f'{objects.address}/{name}' for name in _NAMES},
    cache_bytes,
  )
  yield opened
  opened.close()


def _wait_for_ahead(published):
  for shard in published._shards.values():
    if shard.ahead is not None:
      shard.ahead.result()


def test_a_record_is_read_as_a_range(published):
  for name, position in (('b', 20), ('a', 3), ('b', 11)):
    assert published.read(name, position) == _record(name, position)
  # For each shard its end, and for each record the blocks that it touches.
  assert published.num_cached_bytes() <= 2 * (128 << 10) + 3 * (8 << 16)
  assert published.place('b').endswith('/b')


def test_local_and_published_records_are_equal(published, folder):
  local = shards_lib.LocalShards(folder)
  for position in (0, 1, _NUM_RECORDS - 1):
    assert local.read('c', position) == published.read('c', position)
  assert local.place('c') == str(folder / 'c')
  with pytest.raises(errors.DataError):
    local.read('d', 0)
  local.close()


def test_closed_shards_refuse_to_read(published, folder):
  for opened in (shards_lib.LocalShards(folder), published):
    opened.read('a', 0)
    opened.close()
    num_open = len(os.listdir('/proc/self/fd'))
    for name, position in (('a', 1), ('b', 0)):
      with pytest.raises(ValueError, match='the dataset is closed; open it ag'):
        opened.read(name, position)
    assert len(os.listdir('/proc/self/fd')) == num_open


def test_no_more_shards_are_open_than_a_process_may_have(
  published, folder, monkeypatch
):
  monkeypatch.setattr(shards_lib, '_MAX_OPEN', 2)
  monkeypatch.setattr(resource, 'getrlimit', lambda _: (8, 8))
  for shards, files in ((shards_lib.LocalShards(folder), 1), (published, 2)):
    num_open = len(os.listdir('/proc/self/fd'))
    for position in range(3):
      for name in (*_NAMES, 'a'):
        assert shards.read(name, position) == _record(name, position)
        assert len(os.listdir('/proc/self/fd')) <= num_open + 2 * files
    shards.close()
    assert len(os.listdir('/proc/self/fd')) == num_open


def test_what_comes_next_is_fetched_meanwhile(published, monkeypatch):
  requests = []

  def record(self, name, start, stop, read=objects_lib.Objects.read_range):
    requests.append((threading.current_thread().name, stop - start))
    return read(self, name, start, stop)

  monkeypatch.setattr(objects_lib.Objects, 'read_range', record)
  for position in range(_NUM_RECORDS):
    assert published.read('a', position) == _record('a', position)
    _wait_for_ahead(published)
  by_reader = [size for thread, size in requests if 'MainThread' in thread]
  # The end of the file with its footer, and the first record.
  assert len(by_reader) == 3
  assert len(requests) < _NUM_RECORDS
  assert sum(size for _, size in requests) == published.num_cached_bytes()


def test_an_error_ahead_is_raised_when_its_record_is_read(published, objects):
  published.read('a', 1)
  objects.delete('a')
  published.read('a', 1)
  for position in (2, 3):
    with pytest.raises(errors.InfrastructureError, match='version removed. Op'):
      published.read('a', position)


@pytest.mark.parametrize('published', [3 << 20], indirect=True)
def test_the_oldest_shard_is_dropped_beyond_the_bound(published, tmp_path):
  for position in range(2, 8, 2):
    for name in _NAMES:
      published.read(name, position)
      assert published.num_cached_bytes() <= 3 << 20
  for position in range(12):
    published.read('a', position)
    _wait_for_ahead(published)
  published.read('b', 0)
  assert published.num_cached_bytes() <= 3 << 20
  assert {*published._shards} <= {'a', 'b'}
  assert os.listdir(tmp_path) == []


def test_threads_read_the_same_records(published):
  found = {}

  def read(seed):
    source = random.Random(seed)
    for _ in range(12):
      name, position = source.choice(_NAMES), source.randrange(_NUM_RECORDS)
      is_same = published.read(name, position) == _record(name, position)
      found[seed, name, position] = is_same

  threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(found) > 30 and all(found.values())


def test_damage_and_wrong_positions_are_errors(published, objects, folder):
  content = bytearray((folder / 'c').read_bytes())
  content[5 * _RECORD_BYTES + 99_000] ^= 1
  objects.write('c', bytes(content))
  assert published.read('c', 1) == _record('c', 1)
  with pytest.raises(errors.DataError, match='Corrupted Riegeli'):
    published.read('c', 5)
  with pytest.raises(errors.DataError, match='no record 24'):
    published.read('a', _NUM_RECORDS)
  objects.write('b', bytes(len(content)))
  with pytest.raises(errors.DataError, match='its footer cannot be read'):
    published.read('b', 0)
