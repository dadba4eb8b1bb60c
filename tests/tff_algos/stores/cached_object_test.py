import os

import pytest

from tff_algos.core import errors
from tff_algos.stores import cached_object
from tff_algos.stores import objects as objects_lib

_BLOCK = 1 << 16
_CONTENT = bytes(i % 251 for i in range(40 * _BLOCK + 7))


@pytest.fixture
def objects(request):
  objects = objects_lib.Objects(f'memory://bucket/{request.node.name}')
  objects.write('x', _CONTENT)
  return objects


@pytest.fixture
def requests(monkeypatch):
  """Ranges that are requested, in blocks."""
  found = []

  def record(self, name, start, stop, read=objects_lib.Objects.read_range):
    found.append((start / _BLOCK, stop / _BLOCK))
    return read(self, name, start, stop)

  monkeypatch.setattr(objects_lib.Objects, 'read_range', record)
  return found


def test_missing_blocks_alone_are_requested(objects, requests, tmp_path):
  opened = cached_object.CachedObject(objects, 'x', len(_CONTENT), tmp_path)
  assert (
    opened.read(3 * _BLOCK - 1, 3 * _BLOCK + 1)
    == (_CONTENT[3 * _BLOCK - 1 : 3 * _BLOCK + 1])
  )
  assert requests == [(2, 4)] and opened.num_fetched_bytes == 2 * _BLOCK
  assert [opened.has(block * _BLOCK) for block in (1, 2, 3, 4)] == [
    *(False, True, True, False)
  ]
  opened.fetch(0, 6 * _BLOCK)
  opened.fetch(_BLOCK, 6 * _BLOCK)
  assert requests[1:] == [(0, 2), (4, 6)]
  end = len(_CONTENT) / _BLOCK
  assert opened.read(39 * _BLOCK, len(_CONTENT) + 99) == _CONTENT[39 * _BLOCK :]
  assert requests[3:] == [(39, end)] and opened.has(len(_CONTENT))
  opened.fetch(0, len(_CONTENT))
  # One request reads 16 blocks at most.
  assert requests[4:] == [(6, 22), (22, 38), (38, 39)]
  with open(opened.path, 'rb') as file:
    assert file.read() == _CONTENT
  assert opened.num_fetched_bytes == len(_CONTENT)
  assert os.listdir(tmp_path) == []
  opened.close()


def test_an_object_that_is_shorter_is_damaged(objects, tmp_path):
  opened = cached_object.CachedObject(objects, 'x', len(_CONTENT) + 1, tmp_path)
  with pytest.raises(errors.DataError, match='x is damaged: it has less than'):
    opened.fetch(40 * _BLOCK, 41 * _BLOCK)
  objects.delete('x')
  with pytest.raises(FileNotFoundError, match='x does not exist'):
    opened.fetch(0, 1)
  opened.close()
