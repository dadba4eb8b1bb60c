import errno
import os
import pickle
import tempfile

import pytest

from pipelines.publishing import staging as staging_lib
from tff_algos.core import durable, errors, folder_lock
from tff_algos.stores import objects as objects_lib


def _publish(dataset, version, content):
  with staging_lib.open_staging(dataset) as staging:
    (staging.version / 'file').write_text(content)
    staging_lib.publish(staging, dataset, version)
    staging_lib.write_pointer(staging, dataset / 'CURRENT', version)


def _names(folder):
  return sorted(path.name for path in folder.iterdir())


def test_publish(tmp_path):
  dataset = tmp_path / 'new' / 'dataset'
  _publish(dataset, 'v1', 'one')
  assert _names(dataset) == ['CURRENT', 'versions']
  assert (dataset / 'CURRENT').read_text() == 'v1\n'
  assert (dataset / 'versions' / 'v1' / 'file').read_text() == 'one'


def test_same_version_is_replaced_whole(tmp_path):
  _publish(tmp_path, 'v1', 'damaged')
  _publish(tmp_path, 'v1', 'whole')
  assert (tmp_path / 'versions' / 'v1' / 'file').read_text() == 'whole'
  assert _names(tmp_path) == ['CURRENT', 'versions']


@pytest.mark.parametrize(
  'reason', [KeyboardInterrupt, RuntimeError, SystemExit]
)
def test_failure_leaves_the_old_version_and_nothing_else(tmp_path, reason):
  _publish(tmp_path, 'v1', 'one')
  with pytest.raises(reason):
    with staging_lib.open_staging(tmp_path) as staging:
      (staging.version / 'file').write_text('half')
      raise reason
  assert _names(tmp_path) == ['CURRENT', 'versions']
  assert _names(tmp_path / 'versions') == ['v1']
  assert (tmp_path / 'CURRENT').read_text() == 'v1\n'


def test_leftovers_of_a_killed_run_are_removed(tmp_path):
  (tmp_path / '.staging-dead' / 'work').mkdir(parents=True)
  _publish(tmp_path, 'v1', 'one')
  assert _names(tmp_path) == ['CURRENT', 'versions']


def test_second_run_in_the_same_folder_is_refused(tmp_path):
  with staging_lib.open_staging(tmp_path) as staging:
    with pytest.raises(errors.WorkdirBusyError, match='another run'):
      with staging_lib.open_staging(tmp_path):
        pass
    assert staging.root.is_dir()
  with staging_lib.open_staging(tmp_path):
    pass  # The lock went with the first run.


def test_temporary_files_go_with_the_run(tmp_path):
  before = tempfile.gettempdir(), os.environ.get('TMPDIR')
  with staging_lib.open_staging(tmp_path):
    path = tempfile.mkdtemp()
    assert path.startswith(str(tmp_path))
  assert not os.path.exists(path)
  assert (tempfile.gettempdir(), os.environ.get('TMPDIR')) == before


def test_full_disk_is_an_infrastructure_error(tmp_path):
  with pytest.raises(errors.InfrastructureError, match='No space left'):
    with staging_lib.open_staging(tmp_path):
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  assert not _names(tmp_path)


@pytest.mark.parametrize(
  ('module', 'name'),
  [
    (durable, 'make_folder'),
    (folder_lock, 'exclusive'),
    (tempfile, 'mkdtemp'),
  ],
)
def test_full_disk_before_anything_is_staged(
  tmp_path, monkeypatch, module, name
):
  def fail(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(module, name, fail)
  with pytest.raises(errors.InfrastructureError, match='No space left'):
    with staging_lib.open_staging(tmp_path):
      pass
  assert not _names(tmp_path)


def test_atomic_path(tmp_path):
  with staging_lib.open_staging(tmp_path) as staging:
    target = staging.work / 'file'
    target.write_text('old')
    with pytest.raises(RuntimeError):
      with staging.atomic_path(target) as path:
        path.write_text('half')
        raise RuntimeError
    assert target.read_text() == 'old'
    with staging.atomic_path(target) as path:
      path.write_text('new')
      assert target.read_text() == 'old'
    assert target.read_text() == 'new'
    assert _names(staging.work) == ['file']
    # Other users may read what one of them has built.
    assert target.stat().st_mode & 0o777 == 0o644


def test_what_workers_hand_over_in_a_store(tmp_path):
  place = objects_lib.Objects('memory://staging_test')
  with staging_lib.open_staging(tmp_path, f'{place.address}/tmp/') as staging:
    worker = pickle.loads(pickle.dumps(staging))
    shard = worker.version / 'shard'
    with worker.handing_over(shard) as path:
      path.write_text('012345')
    assert not shard.exists()
    assert worker.read(shard) == b'012345'
    assert worker.read(shard, 2, 4) == b'23'
    with worker.handing_over(worker.work / 'note-1') as path:
      path.write_text('')
    with pytest.raises(RuntimeError):
      with worker.handing_over(worker.work / 'note-2') as path:
        path.write_text('half')
        raise RuntimeError
    assert staging.find('note-') == [staging.work / 'note-1']
    (tmp_path / 'model' / 'part').mkdir(parents=True)
    (tmp_path / 'model' / 'part' / 'note-3').write_text('3')
    shared = staging.share(tmp_path / 'model', 'lent')
    assert worker.read(shared / 'part' / 'note-3') == b'3'
    with worker.fetched(shared) as folder:
      assert (folder / 'part' / 'note-3').read_text() == '3'
    assert not folder.exists()
    assert staging.find('note-') == [staging.work / 'note-1']
    staging.gather()
    assert shard.read_text() == '012345'
    assert not [*staging.work.iterdir()]
    assert len(place.list('tmp')) == 3
  assert not place.list()


def test_objects_of_a_killed_run_are_deleted_by_the_next(tmp_path, monkeypatch):
  place = objects_lib.Objects('memory://staging_test')
  with monkeypatch.context() as patch:
    patch.setattr(staging_lib, '_remove', lambda root, is_last: None)  # A kill.
    with staging_lib.open_staging(tmp_path, place.address) as staging:
      _hand_over(staging, 'note')
  assert place.list() and _names(tmp_path)
  with staging_lib.open_staging(tmp_path):
    assert not place.list()
  assert not _names(tmp_path)


def _hand_over(staging, name):
  with staging.handing_over(staging.work / name) as path:
    path.write_text('1')


def test_a_store_that_fails_at_the_end_stops_nothing(tmp_path, monkeypatch):
  def fail(self):
    raise errors.InfrastructureError('down')

  place = objects_lib.Objects('memory://staging_test')
  with monkeypatch.context() as patch:
    patch.setattr(objects_lib.Objects, 'delete_all', fail)
    with staging_lib.open_staging(tmp_path, place.address) as staging:
      _hand_over(staging, 'note')
  assert place.list()
  with staging_lib.open_staging(tmp_path):
    assert not place.list()
  assert not _names(tmp_path)


def test_what_a_worker_writes_after_a_failure_is_deleted_by_the_next_build(
  tmp_path,
):
  place = objects_lib.Objects('memory://staging_test')
  with pytest.raises(RuntimeError):
    with staging_lib.open_staging(tmp_path, place.address) as staging:
      _hand_over(staging, 'early')
      raise RuntimeError
  assert not place.list()
  _hand_over(staging, 'late')
  with staging_lib.open_staging(tmp_path, place.address):
    assert not place.list()
  assert not _names(tmp_path)


@pytest.mark.parametrize(
  ('number', 'words'),
  [
    (errno.ENOSPC, 'cannot write to /elsewhere/file: No space'),
    (errno.EACCES, 'access /elsewhere/file: Permission denied; check its perm'),
    (errno.EIO, 'access /elsewhere/file: Input/output error; .* and its disk'),
  ],
)
def test_a_disk_elsewhere_that_fails_is_named(tmp_path, number, words):
  with pytest.raises(errors.InfrastructureError, match=words):
    with staging_lib.open_staging(tmp_path):
      raise OSError(number, os.strerror(number), '/elsewhere/file')
