import errno
import os
import tempfile

import pytest

from pipelines.publishing import staging as staging_lib
from tff_algos.core import errors


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


def test_old_versions_stay(tmp_path):
  _publish(tmp_path, 'v1', 'one')
  _publish(tmp_path, 'v2', 'two')
  assert _names(tmp_path / 'versions') == ['v1', 'v2']
  assert (tmp_path / 'CURRENT').read_text() == 'v2\n'


def test_same_version_is_replaced_whole(tmp_path):
  _publish(tmp_path, 'v1', 'damaged')
  _publish(tmp_path, 'v1', 'whole')
  assert (tmp_path / 'versions' / 'v1' / 'file').read_text() == 'whole'
  assert _names(tmp_path) == ['CURRENT', 'versions']


def test_an_older_version_can_be_made_current(tmp_path):
  _publish(tmp_path, 'v1', 'one')
  _publish(tmp_path, 'v2', 'two')
  with staging_lib.open_staging(tmp_path) as staging:
    staging_lib.write_pointer(staging, tmp_path / 'CURRENT', 'v1')
  assert (tmp_path / 'CURRENT').read_text() == 'v1\n'


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
