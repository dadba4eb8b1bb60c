"""Writing bundles: all or nothing, next version, full disks."""

import errno
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.testing import exportable, full_disk, mounts, programs
from tff_algos.core import errors, folder_lock
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import versions


def test_versions_count_up_from_the_highest(tmp_path):
  assert exportable.export_clusters(tmp_path / 'new' / 'base').name == '1'
  (tmp_path / '7').mkdir()
  (tmp_path / 'notes').mkdir()
  (tmp_path / '9').write_text('a file, not a version')
  assert exportable.export_clusters(tmp_path).name == '8'
  assert list(versions.version_folders(tmp_path)) == [7, 8]


def test_model_that_reads_back_otherwise_is_not_published(tmp_path):
  calls = []

  def apply(weights, x):
    # It depends on more than its arguments: how often it was called.
    calls.append(None)
    return x @ weights['kernel'] + float(len(calls))

  model = exportable.linear_model()
  forgetful = model_lib.Model(
    'forgetful', model.task, (4,), 3, model.initialize, apply, True
  )
  with pytest.raises(errors.ExportError, match='differs from the model in mem'):
    exportable.export_clusters(tmp_path, forgetful)
  assert not list(tmp_path.iterdir())


def test_crash_while_checking_leaves_nothing(tmp_path, monkeypatch):
  def interrupt(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(bundle_lib.manifest, 'verify_files', interrupt)
  with pytest.raises(KeyboardInterrupt):
    exportable.export_clusters(tmp_path)
  assert not list(tmp_path.iterdir())


def test_leavings_of_a_killed_export_are_removed(tmp_path):
  # Of the version that comes next, and of one that another process removed.
  for version in (1, 7):
    stale = tmp_path / f'.writing-{version}' / 'variables'
    stale.mkdir(parents=True)
    (stale / 'half').write_text('half a file')
  folder = exportable.export_clusters(tmp_path)
  assert folder.name == '1'
  assert [path.name for path in tmp_path.iterdir()] == ['1']
  assert not (folder / 'variables' / 'half').exists()


def test_second_writer_is_refused(tmp_path):
  with (
    folder_lock.exclusive(tmp_path, ''),
    pytest.raises(errors.WorkdirBusyError, match='another process is writing'),
  ):
    exportable.export_clusters(tmp_path)
  assert exportable.export_clusters(tmp_path).name == '1'


def test_base_that_is_a_file_is_one_error(tmp_path):
  path = tmp_path / 'file'
  path.write_text('')
  for base in (path, path / 'below'):
    with pytest.raises(errors.UserError, match='is a file, where a folder'):
      exportable.export_clusters(base)


@pytest.mark.parametrize('limit', [0, 300, 30_000])
def test_file_that_cannot_grow_is_an_error_to_retry(tmp_path, limit):
  with (
    full_disk.after(limit),
    pytest.raises(
      errors.InfrastructureError, match='cannot be written under .* Free some'
    ),
  ):
    exportable.export_clusters(tmp_path)
  assert not list(tmp_path.iterdir())
  exportable.export_clusters(tmp_path)


@pytest.mark.parametrize(
  'failure',
  [
    OSError(errno.ENOTDIR, 'Not a directory', 'x'),
    tf.errors.InvalidArgumentError(None, None, 'the graph is wrong'),
  ],
)
def test_what_no_retry_mends_is_an_export_error(tmp_path, failure):
  def write(_):
    raise failure

  with pytest.raises(errors.ExportError) as error:
    bundle_lib.write_version(tmp_path, write)
  assert 'Free some' not in str(error.value)


_FULL_DISK = """
import pathlib, subprocess, sys
from tests.testing import exportable
from tff_algos.core import errors
base = pathlib.Path(sys.argv[1])
failures = 0
for pages in list(range(2, 60, 8)) + [200]:
  size = f'size={4 * pages}k'
  subprocess.run(['mount', '-t', 'tmpfs', '-o', size, 'tmpfs', base], check=True)
  try:
    exportable.export_clusters(base)
    assert [path.name for path in base.iterdir()] == ['1']
  except errors.InfrastructureError as error:
    failures += 1
    assert 'No space left on device' in str(error), error
    assert '\\n' not in str(error), error
    assert not list(base.iterdir()), pages
  subprocess.run(['umount', base], check=True)
print('failures', failures)
"""


@pytest.mark.verify
def test_full_disk_is_an_error_to_retry(tmp_path):
  """Fills real, tiny file systems in a mount namespace of its own."""
  mounts.need('-m')
  done = subprocess.run(
    ['unshare', '-m', sys.executable, '-c', _FULL_DISK, tmp_path],
    cwd=programs.ROOT,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  # Some of these disks are too small, and the largest is not.
  assert 3 <= int(done.stdout.split()[-1]) <= 8
