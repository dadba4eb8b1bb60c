import datetime
import pathlib

import pytest

from tests.testing import s3_server
from tff_algos.core import errors
from tff_algos.stores import objects as objects_lib


@pytest.fixture
def objects(address):
  return objects_lib.Objects(f'{address}/')


@pytest.fixture
def fault(s3, monkeypatch):
  """Sets which of the next requests fail, and how."""

  def choose(kind, methods, times):
    left = [kind] * times
    s3.requests.clear()
    monkeypatch.setattr(
      s3,
      'fault',
      lambda method, path: left.pop() if left and method in methods else None,
    )

  return choose


def test_addresses_are_told_from_paths():
  assert objects_lib.is_address('s3://bucket/run')
  for path in ('runs/digits', '/runs', pathlib.Path('s3:/x'), None, ''):
    assert not objects_lib.is_address(path)
  with pytest.raises(errors.ConfigError, match="http://x: unknown scheme 'ht"):
    objects_lib.is_address('http://x')
  with pytest.raises(errors.ConfigError, match="S3://x: unknown scheme 'S3'"):
    objects_lib.is_address('S3://x')
  for address in ('s3://', 'runs/digits', 's3:///x'):
    with pytest.raises(errors.ConfigError, match='no address of an object'):
      objects_lib.Objects(address)


def test_objects_are_written_read_listed_and_deleted(objects, tmp_path):
  objects.write('a/one', b'0123456789')
  objects.write('a/none', b'')
  objects.write('ab', b'x')
  assert objects.read('a/one') == b'0123456789'
  assert objects.size('a/one') == 10
  assert objects.read_range('a/one', 3, 6) == b'345'
  assert objects.read_range('a/one', 8, 12) == b'89'
  assert objects.read_range('a/one', 3, 3) == b''
  listed = objects.list('a')
  assert {name: one.size for name, one in listed.items()} == {
    'a/one': 10,
    'a/none': 0,
  }
  age = datetime.datetime.now(datetime.UTC) - listed['a/one'].written
  assert abs(age) < datetime.timedelta(minutes=5)
  assert set(objects.list()) == {'a/one', 'a/none', 'ab'}
  for name in ('a/one', 'a/one'):
    objects.delete(name)
  with pytest.raises(FileNotFoundError, match='/a/one does not exist'):
    objects.read('a/one')
  with pytest.raises(FileNotFoundError, match='/a/one does not exist'):
    objects.download('a/one', tmp_path / 'file')


def test_files_are_transferred_in_parts(objects, tmp_path, monkeypatch):
  monkeypatch.setattr(objects_lib, '_PART_BYTES', 1000)
  for size in (0, 999, 2000, 2001):
    content = bytes(i % 251 for i in range(size))
    (tmp_path / 'up').write_bytes(content)
    objects.upload(tmp_path / 'up', 'file')
    objects.download('file', tmp_path / 'down')
    assert (tmp_path / 'down').read_bytes() == content


def test_of_two_conditional_writes_one_is_refused(objects):
  first = objects.write_if('head', b'1', None)
  with pytest.raises(objects_lib.ChangedError):
    objects.write_if('head', b'2', None)
  content, tag = objects.read_tagged('head')
  assert (content, tag) == (b'1', first)
  second = objects.write_if('head', b'3', tag)
  with pytest.raises(objects_lib.ChangedError):
    objects.write_if('head', b'4', tag)
  assert objects.read('head') == b'3'
  objects.delete('head')
  with pytest.raises(objects_lib.ChangedError):
    objects.write_if('head', b'5', second)


def test_a_conditional_write_whose_response_is_lost_is_no_conflict(s3, fault):
  objects = objects_lib.Objects(f's3://{s3_server.BUCKET}/lost')
  fault('lost', 'PUT', 1)
  tag = objects.write_if('head', b'1', None)
  fault('lost', 'PUT', 1)
  objects.write_if('head', b'2', tag)
  assert objects.read('head') == b'2'


@pytest.mark.parametrize('kind', ['status', 'lost', 'torn'])
def test_failed_requests_are_repeated(s3, fault, kind, tmp_path):
  objects = objects_lib.Objects(f's3://{s3_server.BUCKET}/repeated-{kind}')
  path = tmp_path / 'file'
  path.write_bytes(b'content' * 1000)
  fault(kind if kind != 'torn' else 'lost', 'PUT', 2)
  objects.upload(path, 'file')
  fault(kind, 'GET', 2)
  objects.download('file', tmp_path / 'copy')
  assert (tmp_path / 'copy').read_bytes() == path.read_bytes()
  assert [method for method, *_ in s3.requests].count('GET') >= 3
  fault(kind, 'GET', 2)
  assert set(objects.list()) == {'file'}


def test_an_object_that_changes_behind_a_torn_response_is_read_anew(
  s3, monkeypatch
):
  objects = objects_lib.Objects(f's3://{s3_server.BUCKET}/changed')
  objects.write('head', b'old' * 100)
  reads = []

  def fault(method, path):
    if method != 'GET':
      return None
    reads.append(path)
    if len(reads) == 2:
      objects.write('head', b'new' * 100)
    return 'torn' if len(reads) == 1 else None

  monkeypatch.setattr(s3, 'fault', fault)
  assert objects.read('head') == b'new' * 100


@pytest.mark.parametrize(('seconds', 'times'), [(60, 3), (0, 1)])
def test_a_list_is_repeated_while_patience_lasts(monkeypatch, seconds, times):
  """The library's own patience with an unreachable store is as long."""
  patience = datetime.timedelta(seconds=seconds)
  monkeypatch.setattr(objects_lib, '_PATIENCE', patience)
  objects, asked = objects_lib.Objects('memory://bucket/listed'), []

  def fail(store, path):
    asked.append(path)
    raise objects._exceptions.GenericError('unreachable')

  monkeypatch.setattr(objects._api, 'list', fail)
  with pytest.raises(errors.InfrastructureError, match='unreachable'):
    objects.list()
  assert len(asked) == times


def test_an_error_names_the_address_and_what_to_do(s3, fault, monkeypatch):
  missing = objects_lib.Objects('s3://nobody/run')
  with pytest.raises(
    errors.InfrastructureError, match='no such bucket; create'
  ):
    missing.write('x', b'')
  monkeypatch.setattr(
    objects_lib, '_PATIENCE', datetime.timedelta(milliseconds=200)
  )
  objects = objects_lib.Objects(f's3://{s3_server.BUCKET}/gone')
  fault('status', ('GET', 'PUT'), 1000)
  with pytest.raises(
    errors.InfrastructureError, match=r's3://bucket/gone/x cannot be reached:'
  ):
    objects.read('x')
  with pytest.raises(errors.InfrastructureError, match='cannot be reached'):
    objects.write_if('x', b'1', None)
