import datetime
import hashlib
import json
import os

import pytest

from tests.testing import power_loss
from tff_algos.core import errors
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import snapshots


@pytest.fixture
def objects(request):
  return objects_lib.Objects(f'memory://bucket/{request.node.name}')


@pytest.fixture
def folder(tmp_path):
  """A folder with files, links, an empty folder and hidden files."""
  folder = tmp_path / 'folder'
  for name in ('a/b/deep', 'a/same', 'top', '.lock', 'a/.staging/x', 'c'):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f'content of {name}')
  (folder / 'a/again').write_text('content of top')
  (folder / 'metrics.writing').write_text('half')
  (folder / 'empty').mkdir()
  (folder / 'a/link').symlink_to('b')
  os.utime(folder / 'a/b', ns=(10**18, 10**18))
  return folder


def _content(folder):
  return {
    path.relative_to(folder).as_posix(): (
      os.readlink(path)
      if path.is_symlink()
      else path.is_dir() or path.read_text()
    )
    for path in folder.rglob('*')
  }


def _copy(objects, sha256, folder):
  snapshot = snapshots.read(objects, sha256)
  snapshots.fetch(objects, snapshot, folder, folder.with_name('scratch'))
  assert not folder.with_name('scratch').exists()
  return _content(folder)


def test_a_copy_equals_the_folder_without_hidden_files(
  objects, folder, tmp_path
):
  sha256 = snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())
  expected = {
    name: value for name, value in _content(folder).items() if '.' not in name
  }
  assert len(expected) == 9 and expected['a/link'] == 'b'
  assert _copy(objects, sha256, tmp_path / 'copy') == expected
  assert (tmp_path / 'copy/a/b').stat().st_mtime_ns == 10**18
  assert len(objects.list(snapshots.OBJECTS)) == 4  # One text is twice.


def test_changes_alone_are_transferred(objects, folder, tmp_path, monkeypatch):
  publisher = snapshots.Publisher(objects, folder)
  before = publisher.upload(snapshots.Snapshot())
  copy = tmp_path / 'copy'
  _copy(objects, before, copy)
  (folder / 'top').write_text('changed')
  (folder / 'a/same').unlink()
  (folder / 'a/link').unlink()
  (folder / 'a/link').mkdir()
  (folder / 'a/link/new').write_text('new')
  (folder / 'c').unlink()
  (folder / 'c').symlink_to('top')
  moved = []
  for name in ('upload', 'download'):

    def record(self, *args, before=getattr(objects_lib.Objects, name)):
      moved.append(args)
      before(self, *args)

    monkeypatch.setattr(objects_lib.Objects, name, record)
  after = publisher.upload(snapshots.read(objects, before))
  assert len(moved) == 2
  (copy / '.staging').mkdir()  # A killed process left it.
  (copy / 'a/same').write_text('damaged')
  content = _copy(objects, after, copy)
  assert len(moved) == 4
  assert content['top'] == 'changed' and content['a/link/new'] == 'new'
  assert content['c'] == 'top' and content['a/b/deep'] == 'content of a/b/deep'
  assert 'a/same' not in content and '.staging' not in content


def test_a_log_that_grows_meanwhile_is_read_again(objects, folder, monkeypatch):
  upload = objects_lib.Objects.upload

  def grow(self, path, name):
    upload(self, path, name)
    if path.name == 'top' and path.read_text() == 'content of top':
      with open(path, 'a') as file:
        file.write(', grown')

  monkeypatch.setattr(objects_lib.Objects, 'upload', grow)
  sha256 = snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())
  entry = snapshots.read(objects, sha256).files['top']
  found = objects.read(snapshots.object_name(entry))
  assert found == b'content of top, grown'


def test_a_missing_folder_appears_when_it_is_complete(
  objects, folder, tmp_path, monkeypatch
):
  empty = snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())
  copy = tmp_path / 'copy'
  _copy(objects, empty, copy)
  (folder / 'version').mkdir()
  for name in ('x', 'y'):
    (folder / 'version' / name).write_text(name)
  (folder / 'CURRENT').write_text('version')
  sha256 = snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())
  seen = []
  for name in ('rename', 'replace'):

    def spy(source, target, move=getattr(os, name)):
      seen.append(_content(copy))
      move(source, target)

    monkeypatch.setattr(os, name, spy)
  _copy(objects, sha256, copy)
  assert len(seen) >= 2
  for content in [*seen, _content(copy)]:
    assert ('version/x' in content) == ('version/y' in content)
    assert 'CURRENT' not in content or 'version/x' in content


def test_damage_is_an_error(objects, folder, tmp_path):
  sha256 = snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())
  entry = snapshots.read(objects, sha256).files['top']
  objects.write(snapshots.object_name(entry), b'content of tOp')
  with pytest.raises(errors.DataError, match='objects/.* is damaged: its SHA'):
    _copy(objects, sha256, tmp_path / 'copy')
  objects.delete(snapshots.object_name(entry))
  with pytest.raises(FileNotFoundError, match='does not exist'):
    _copy(objects, sha256, tmp_path / 'copy')
  assert (
    not (tmp_path / 'copy').exists() and not (tmp_path / 'scratch').exists()
  )
  objects.write(f'{snapshots.SNAPSHOTS}/{sha256}', b'{}')
  with pytest.raises(errors.DataError, match='is damaged. Publish'):
    snapshots.read(objects, sha256)


def test_what_is_missing_or_cut_off_is_uploaded_again(
  objects, folder, tmp_path, monkeypatch
):
  sha256 = snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())
  known, listed = snapshots.read(objects, sha256), []
  objects.delete(snapshots.object_name(known.files['top']))
  objects.write(snapshots.object_name(known.files['c']), b'cont')
  list_objects = objects_lib.Objects.list

  def record(self, prefix):
    listed.append(prefix)
    return list_objects(self, prefix)

  monkeypatch.setattr(objects_lib.Objects, 'list', record)
  publisher = snapshots.Publisher(objects, folder)
  assert publisher.upload(known) == publisher.upload(known) == sha256
  assert listed == [snapshots.OBJECTS]
  assert _copy(objects, sha256, tmp_path / 'copy')['c'] == 'content of c'


@pytest.mark.parametrize('target', ['../outside', '/tmp'])
def test_a_link_out_of_the_folder_is_refused(objects, folder, target):
  (folder / 'bad').symlink_to(target)
  with pytest.raises(
    errors.ConfigError, match=f'bad is a link to {target}, out'
  ):
    snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())


@pytest.mark.parametrize(
  'content',
  [
    {'files': {'../escaped': {'size_bytes': 1, 'sha256': '0'}}},
    {'files': {'/tmp/escaped': {'size_bytes': 1, 'sha256': '0'}}},
    {'links': {'inner/link': '../../outside'}},
    {'links': {'link': '/etc'}},
    {'folders': {'a/../..': 1}},
  ],
)
def test_a_snapshot_that_leads_out_of_its_folder_is_refused(objects, content):
  """It is of somebody else who can write to the bucket."""
  spelled = json.dumps(content).encode()
  sha256 = hashlib.sha256(spelled).hexdigest()
  objects.write(f'{snapshots.SNAPSHOTS}/{sha256}', spelled)
  with pytest.raises(errors.DataError, match='leads out of its folder'):
    snapshots.read(objects, sha256)


def test_a_part_of_a_snapshot(objects, folder):
  sha256 = snapshots.Publisher(objects, folder).upload(snapshots.Snapshot())
  snapshot = snapshots.read(objects, sha256)
  assert snapshot.part('') == snapshot
  part = snapshot.part('a')
  assert set(part.files) == {'b/deep', 'same', 'again'}
  assert (set(part.links), set(part.folders)) == ({'link'}, {'b'})


def test_unused_objects_are_removed_after_a_day(objects, folder, monkeypatch):
  publisher = snapshots.Publisher(objects, folder)
  before = publisher.upload(snapshots.Snapshot())
  (folder / 'a/same').unlink()
  after = publisher.upload(snapshots.read(objects, before))
  objects.write('HEAD.json', b'{}')
  everything = objects.list()
  snapshots.remove_unused(objects, after)
  assert objects.list() == everything
  monkeypatch.setattr(snapshots, 'KEPT', datetime.timedelta())
  snapshots.remove_unused(objects, after)
  assert len(everything) - len(objects.list()) == 2
  assert objects.list().keys() < everything.keys()
  assert f'{snapshots.SNAPSHOTS}/{after}' in objects.list()


def test_a_fetched_snapshot_outlasts_a_power_loss(objects, folder, tmp_path):
  place = tmp_path / 'place'
  place.mkdir()
  (folder / 'a/link').unlink()  # `power_loss` knows no links.
  publisher = snapshots.Publisher(objects, folder)
  _copy(objects, publisher.upload(snapshots.Snapshot()), place / 'copy')
  (folder / 'a/b/new').write_text('new')
  (folder / 'top').unlink()
  sha256 = publisher.upload(snapshots.Snapshot())

  def recover(left, is_finished):
    if is_finished:
      assert (left / 'copy/a/b/new').read_text() == 'new'
      assert not (left / 'copy/top').exists()

  fetch = lambda: _copy(objects, sha256, place / 'copy')
  power_loss.check(place, fetch, recover)
