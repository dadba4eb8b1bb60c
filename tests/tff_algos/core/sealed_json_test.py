"""JSON files that carry the checksum of their content."""

import errno
import json
import pathlib

import pytest

from tff_algos.core import errors, sealed_json

_CONTENT = {'b': 1.5, 'a': {'z': [1, None], 'y': float('inf')}, 'c': 'ä'}


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'sub' / 'file.json'
  sealed_json.write(path, _CONTENT)
  return path


def _refused(path, fault):
  return pytest.raises(errors.DataError, match=f'{path} .*{fault}.* Do this.')


def test_content_comes_back_without_its_checksum(path):
  assert sealed_json.read(path, '') == _CONTENT
  assert path.read_text().endswith('}\n')


def test_every_changed_byte_is_found(path):
  """Unless the JSON means the same, as with another key for the checksum."""
  whole = path.read_bytes()
  found = 0
  for position in range(len(whole)):
    changed = bytearray(whole)
    changed[position] ^= 1
    path.write_bytes(changed)
    try:
      content = sealed_json.read(path, '')
    except errors.DataError:
      found += 1
    else:
      assert {key: content[key] for key in _CONTENT} == _CONTENT
  assert found > len(whole) - len('"checksum"') - 1


def test_a_file_without_its_checksum_is_damaged(path):
  path.write_text(json.dumps(_CONTENT))
  with _refused(path, 'changed since it was written'):
    sealed_json.read(path, 'Do this.')


@pytest.mark.parametrize(
  ('text', 'fault'),
  [('', 'no JSON'), ('[1]', 'got list'), ('{"a": 1', 'no JSON')],
)
def test_damage_is_named_with_the_remedy(path, text, fault):
  path.write_text(text)
  with _refused(path, fault):
    sealed_json.read(path, 'Do this.')


def test_missing_files_and_folders_are_named(path):
  path.unlink()
  with _refused(path, 'is missing'):
    sealed_json.read(path, 'Do this.')
  path.mkdir()
  with _refused(path, 'cannot be read: Is a directory'):
    sealed_json.read(path, 'Do this.')


def test_an_error_of_the_disk_is_no_damage(path, monkeypatch):
  def fail(*unused_arguments, **unused_options):
    raise OSError(errno.EIO, 'Input/output error')

  monkeypatch.setattr(pathlib.Path, 'read_text', fail)
  with pytest.raises(OSError, match='Input/output error') as caught:
    sealed_json.read(path, 'Do this.')
  assert errors.is_of_disk(caught.value)


def test_checksum_does_not_depend_on_the_order_of_keys():
  one = {'version': 'v1', 'files': {'a': 1, 'b': 2}, 'checksum': 'any'}
  two = {'files': {'b': 2, 'a': 1}, 'version': 'v1'}
  assert sealed_json.checksum(one) == sealed_json.checksum(two)
