import contextlib
import datetime
import os
import socket
import threading

import pytest

from tests.testing import patience, s3_server
from tff_algos.core import cache_folder, errors
from tff_algos.stores import mirror as mirror_lib
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import pointer, snapshots


@pytest.fixture(autouse=True)
def on(monkeypatch, tmp_path):
  """Moves to a machine, by name: each has a cache of its own."""

  def move(machine):
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / machine))

  move('a')
  return move


def test_another_machine_goes_on_from_what_was_published(address, on):
  first = mirror_lib.Mirror(address)
  assert not first.fetch()
  with first.writing() as publish:
    (first.folder / 'round').write_text('1')
    publish()
    (first.folder / 'round').write_text('2')
  on('b')
  second = mirror_lib.Mirror(address)
  assert second.folder != first.folder
  assert second.fetch() and (second.folder / 'round').read_text() == '2'
  with second.writing():
    (second.folder / 'round').write_text('3')
  assert first.fetch() and (first.folder / 'round').read_text() == '3'


@pytest.mark.parametrize('name', ['base', 'holder', 'fetching'])
def test_a_folder_of_any_name_is_mirrored(on, name):
  address = f'memory://any/{name}'
  first = mirror_lib.Mirror(address)
  with first.writing():
    (first.folder / 'round').write_text('1')
  on('b')
  second = mirror_lib.Mirror(address)
  assert second.fetch() and (second.folder / 'round').read_text() == '1'
  with second.writing():
    (second.folder / 'more').write_text('2')
  assert first.fetch() and first.folder.name == name
  names = sorted(path.name for path in first.folder.iterdir())
  assert names == ['more', 'round']


def test_one_machine_writes_at_a_time(address, on, monkeypatch):
  monkeypatch.setattr(mirror_lib, '_PATIENCE_SECONDS', 0.1)
  first = mirror_lib.Mirror(address)
  with first.writing() as publish:
    (first.folder / 'round').write_text('1')
    publish()
    with pytest.raises(
      errors.WorkdirBusyError, match='of this machine works in'
    ):
      with mirror_lib.Mirror(address).writing():
        pass
    on('b')
    other = mirror_lib.Mirror(address)
    with pytest.raises(
      errors.WorkdirBusyError, match='is in use by .* in [56]'
    ):
      with other.writing():
        pass
    assert other.fetch() and (other.folder / 'round').read_text() == '1'
  with other.writing():
    pass


def test_readers_of_a_machine_take_turns():
  first, second = (mirror_lib.Mirror('memory://bucket/turns') for _ in 'ab')
  with first.writing():
    (first.folder / 'round').write_text('1')
    with pytest.raises(errors.WorkdirBusyError, match='this machine works in'):
      second.fetch(0.0)
  with contextlib.ExitStack() as stack:
    stack.enter_context(first._locked(0.0))
    # What a reader does takes a moment.
    timer = threading.Timer(0.3, stack.pop_all().close)
    timer.start()
    assert second.fetch()
    timer.join()


def test_machines_that_share_a_cache_share_no_lease(address, monkeypatch):
  mirror = mirror_lib.Mirror(address)
  monkeypatch.setattr(socket, 'gethostname', lambda: 'one')
  with mirror.writing():
    pass
  pointer.Lease(objects_lib.Objects(address), mirror._name())
  monkeypatch.setattr(socket, 'gethostname', lambda: 'two')
  with pytest.raises(errors.WorkdirBusyError, match='is in use by one'):
    with mirror.writing():
      pass
  monkeypatch.setattr(socket, 'gethostname', lambda: 'one')
  with mirror.writing():
    pass


def test_a_failed_block_publishes_what_it_did(address):
  mirror = mirror_lib.Mirror(address)
  with pytest.raises(ZeroDivisionError):
    with mirror.writing():
      (mirror.folder / 'round').write_text('1')
      1 / 0  # noqa: B018
  assert pointer.read(objects_lib.Objects(address))[0].holder is None
  with mirror.writing():
    (mirror.folder / 'round').unlink()
  assert mirror.fetch() and not list(mirror.folder.iterdir())


def test_a_killed_machine_is_replaced_when_its_lease_ends(
  address, on, monkeypatch
):
  killed = mirror_lib.Mirror(address)
  block = killed.writing()
  with monkeypatch.context() as patched:
    patched.setattr(pointer.Lease, 'renewing', contextlib.nullcontext)
    patched.setattr(pointer, '_LEASE_SECONDS', 0)
    monkeypatch.setattr(pointer, '_RENEWAL_SECONDS', 0.01)
    publish = block.__enter__()
    (killed.folder / 'round').write_text('1')
    publish()
  (killed.folder / 'round').write_text('2, not published')
  on('b')
  other = mirror_lib.Mirror(address)
  with other.writing():
    assert (other.folder / 'round').read_text() == '1'
    (other.folder / 'round').write_text('2')
  # It was only asleep.
  with pytest.raises(errors.WorkdirBusyError, match='was taken over by'):
    block.__exit__(None, None, None)
  on('a')
  killed = mirror_lib.Mirror(address)
  assert killed.fetch() and (killed.folder / 'round').read_text() == '2'


def _fail(*unused, **options):
  raise errors.InfrastructureError('the store is away')


def test_what_could_not_be_published_stays_and_is_published_later(
  address, on, monkeypatch
):
  mirror = mirror_lib.Mirror(address)

  with monkeypatch.context() as patched:
    with pytest.raises(errors.InfrastructureError, match='is away'):
      with mirror.writing():
        (mirror.folder / 'round').write_text('1')
        patched.setattr(objects_lib.Objects, 'upload', _fail)
  assert pointer.read(objects_lib.Objects(address))[0].snapshot is None
  with mirror.writing():
    assert (mirror.folder / 'round').read_text() == '1'
  on('b')
  other = mirror_lib.Mirror(address)
  assert other.fetch() and (other.folder / 'round').read_text() == '1'


def test_objects_that_may_not_be_deleted_stay(address, monkeypatch, caplog):
  mirror = mirror_lib.Mirror(address)
  monkeypatch.setattr(snapshots, 'KEPT', datetime.timedelta(-1))
  monkeypatch.setattr(objects_lib.Objects, 'delete', _fail)
  for content in '12':
    with mirror.writing():
      (mirror.folder / 'round').write_text(content)
  assert caplog.text.count('that no snapshot needs are left: the store is') == 1
  assert pointer.read(objects_lib.Objects(address))[0].holder is None


def test_the_error_of_a_block_is_told_where_its_store_is_away_too(
  address, monkeypatch, caplog
):
  mirror = mirror_lib.Mirror(address)

  with monkeypatch.context() as patched:
    with pytest.raises(errors.ConfigError, match='a rate of -1'):
      with mirror.writing():
        (mirror.folder / 'round').write_text('1')
        patched.setattr(objects_lib.Objects, 'upload', _fail)
        patched.setattr(objects_lib.Objects, 'write_if', _fail)
        raise errors.ConfigError('a rate of -1')
  assert caplog.text.count('the store is away') == 2
  with mirror.writing():
    assert (mirror.folder / 'round').read_text() == '1'


def test_a_part_is_mirrored_alone(address):
  whole = mirror_lib.Mirror(address)
  with whole.writing():
    for name in ('export/model/1', 'dataset'):
      (whole.folder / name).mkdir(parents=True)
      (whole.folder / name / 'file').write_text(name)
  part = mirror_lib.Mirror(address, 'export')
  assert part.fetch() and part.folder.name == 'export'
  assert [path.name for path in part.folder.iterdir()] == ['model']
  assert (part.folder / 'model/1/file').read_text() == 'export/model/1'


def test_what_changes_outside_of_a_part_is_not_fetched(address, monkeypatch):
  whole = mirror_lib.Mirror(address)
  part = mirror_lib.Mirror(address, 'export')
  fetched = []
  fetch = snapshots.fetch
  monkeypatch.setattr(
    snapshots, 'fetch', lambda *args: fetched.append(1) or fetch(*args)
  )
  with whole.writing() as publish:
    (whole.folder / 'export').mkdir()
    for name, count in (('round', 1), ('round', 1), ('export/model', 2)):
      path = whole.folder / name
      path.write_text(path.read_text() + '1' if path.exists() else '1')
      publish()
      assert part.fetch() and len(fetched) == count
  assert (part.folder / 'model').read_text() == '1'
  assert mirror_lib.Mirror(address, 'export').fetch() and len(fetched) == 2


def test_the_publication_of_a_folder_is_its_own_or_of_the_nearest_parent(
  address,
):
  inner = f'{address}/a/b/c'
  assert mirror_lib.publication(f'{inner}/') == (inner, '')
  for outer, name in ((address, 'a/b/c'), (f'{address}/a', 'b/c')):
    # An earlier one that has no files hides nothing.
    for one in (outer, inner):
      with mirror_lib.Mirror(one).writing():
        pass
    assert mirror_lib.publication(inner) == (outer, name)
    assert mirror_lib.publication(outer)[0] == outer.removesuffix('/a')
  mirror = mirror_lib.Mirror(inner)
  with mirror.writing():
    (mirror.folder / 'file').write_text('1')
  assert mirror_lib.publication(inner) == (inner, '')


def test_parents_that_may_not_be_read_are_no_publication(s3, monkeypatch):
  hidden = f'/{s3_server.BUCKET}/{pointer.NAME}'
  monkeypatch.setattr(
    s3, 'fault', lambda _, path: 'forbidden' if path == hidden else None
  )
  address = f's3://{s3_server.BUCKET}/own'
  assert mirror_lib.publication(address) == (address, '')


def test_a_snapshot_that_is_replaced_while_it_is_fetched(
  address, on, monkeypatch
):
  writer = mirror_lib.Mirror(address)
  with writer.writing():
    (writer.folder / 'round').write_text('1')
  on('b')
  reader, fetch = mirror_lib.Mirror(address), snapshots.fetch

  def replaced(*args):
    monkeypatch.setattr(snapshots, 'fetch', fetch)
    monkeypatch.setattr(snapshots, 'KEPT', snapshots.datetime.timedelta())
    with writer.writing():
      (writer.folder / 'round').write_text('2')
    fetch(*args)

  monkeypatch.setattr(snapshots, 'fetch', replaced)
  assert reader.fetch() and (reader.folder / 'round').read_text() == '2'
  objects = objects_lib.Objects(address)
  for name in objects.list(snapshots.OBJECTS):
    objects.delete(name)
  on('c')
  reader = mirror_lib.Mirror(address)
  for _ in range(2):
    with pytest.raises(errors.DataError, match='which the published snapshot'):
      reader.fetch()
    assert not reader.folder.exists()


@pytest.mark.parametrize('is_damaged', [False, True])
def test_publishing_again_restores_an_object(address, on, is_damaged):
  first = mirror_lib.Mirror(address)
  with first.writing():
    (first.folder / 'round').write_text('1')
  objects = objects_lib.Objects(address)
  (name,) = objects.list(snapshots.OBJECTS)
  if is_damaged:
    objects.write(name, b'2')
    on('b')
    with pytest.raises(errors.DataError, match='Delete it, and publish the'):
      mirror_lib.Mirror(address).fetch()
  objects.delete(name)
  on('a')
  with mirror_lib.Mirror(address).writing():
    pass
  on('b')
  second = mirror_lib.Mirror(address)
  assert second.fetch() and (second.folder / 'round').read_text() == '1'


@pytest.mark.parametrize('kind', [snapshots.OBJECTS, snapshots.SNAPSHOTS])
@pytest.mark.parametrize('is_damaged', [False, True])
def test_what_a_writer_misses_is_told_and_restored_by_another(
  address, on, kind, is_damaged
):
  first = mirror_lib.Mirror(address)
  with first.writing():
    (first.folder / 'round').write_text('1')
  objects = objects_lib.Objects(address)
  (name,) = objects.list(kind)
  if is_damaged:
    objects.write(name, b'')
  else:
    objects.delete(name)
  on('b')
  second = mirror_lib.Mirror(address)
  advice = 'damaged' if is_damaged else 'which the published snapshot needs'
  with pytest.raises(errors.DataError, match=advice):
    with second.writing():
      pass
  on('a')
  with mirror_lib.Mirror(address).writing():
    pass
  on('b')
  with second.writing():
    assert (second.folder / 'round').read_text() == '1'


def test_a_fetch_that_is_interrupted_is_repeated(address, on, monkeypatch):
  writer = mirror_lib.Mirror(address)
  with writer.writing():
    (writer.folder / 'round').write_text('1')
  on('b')
  reader = mirror_lib.Mirror(address)
  reader.fetch()
  with writer.writing():
    (writer.folder / 'round').write_text('2')
    (writer.folder / 'more').write_text('2')
  replace, moved = os.replace, []
  with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):

    def interrupt(source, target):
      if moved:
        raise KeyboardInterrupt
      moved.append(target)
      replace(source, target)

    patched.setattr(snapshots.os, 'replace', interrupt)
    reader.fetch()
  assert len(moved) == 1
  # The first content again, of which the reader has but a part.
  with writer.writing():
    (writer.folder / 'round').write_text('1')
    (writer.folder / 'more').unlink()
  assert reader.fetch()
  assert [path.name for path in reader.folder.iterdir()] == ['round']
  assert (reader.folder / 'round').read_text() == '1'


def test_a_reader_follows_what_is_published(address, on, monkeypatch):
  monkeypatch.setattr(mirror_lib, '_FOLLOW_SECONDS', 0.01)
  writer = mirror_lib.Mirror(address)
  with pytest.raises(
    errors.DataError, match='nothing is published at .*; mend'
  ):
    with writer.following():
      pass
  with writer.writing() as publish:
    (writer.folder / 'round').write_text('1')
    publish()
    on('b')
    reader = mirror_lib.Mirror(address)
    with reader.following():
      assert (reader.folder / 'round').read_text() == '1'
      (writer.folder / 'round').write_text('2')
      publish()
      patience.until(lambda: (reader.folder / 'round').read_text() == '2')
