"""Staging folder of a version, and its atomic publication.

A dataset's folder is locked while it is built. Files left by a killed run are
removed by the next one.
"""

import contextlib
import errno
import os
import pathlib
import shutil
import tempfile
from collections.abc import Generator

from tff_algos.core import durable, errors, folder_lock
from tff_algos.data import layout

_PREFIX = '.staging-'
# Error codes of a full or read-only disk.
DISK_ERRORS = (
  *(errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EROFS),
)


class Staging:
  """Staging folder of one version.

  Attributes:
    root: The folder; removed when the run ends.
    version: Files to be published.
    work: Intermediate files of the steps.
  """

  def __init__(self, root: pathlib.Path) -> None:
    self.root = root
    self.version = root / 'version'
    self.work = root / 'work'

  @contextlib.contextmanager
  def atomic_path(self, path: pathlib.Path) -> Generator[pathlib.Path]:
    """Yields a temporary path, renamed to `path` on success.

    Safe if a runner executes the same step twice, even concurrently.
    """
    descriptor, name = tempfile.mkstemp(dir=self.root / 'tmp')
    os.close(descriptor)
    yield pathlib.Path(name)
    os.chmod(name, 0o644)
    os.replace(name, path)


@contextlib.contextmanager
def open_staging(dataset: pathlib.Path) -> Generator[Staging]:
  """Locks a dataset's folder and yields a staging folder.

  Raises:
    WorkdirBusyError: If another run is building there.
    InfrastructureError: If the disk is full or read-only.
  """
  durable.make_folder(dataset)
  with folder_lock.exclusive(dataset, f'another run is writing to {dataset}'):
    for leftover in dataset.glob(f'{_PREFIX}*'):
      shutil.rmtree(leftover, ignore_errors=True)
    root = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=dataset))
    try:
      staging = Staging(root)
      for folder in (staging.version, staging.work, root / 'tmp'):
        folder.mkdir()
      with _temporary_files_in(root / 'tmp'):
        yield staging
    except OSError as error:
      if error.errno not in DISK_ERRORS:
        raise
      raise errors.InfrastructureError(
        f'cannot write to {dataset}: {error.strerror}. Make room, or choose '
        'another workdir.'
      ) from None
    finally:
      # Workers of a build that failed may still write there; the next build
      # removes what is left.
      shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def _temporary_files_in(folder: pathlib.Path) -> Generator[None]:
  """Redirects temporary files, which some Beam runners do not remove."""
  before = tempfile.tempdir, os.environ.get('TMPDIR')
  tempfile.tempdir = os.environ['TMPDIR'] = str(folder)
  try:
    yield
  finally:
    tempfile.tempdir = before[0]
    if before[1] is None:
      del os.environ['TMPDIR']
    else:
      os.environ['TMPDIR'] = before[1]


def publish(staging: Staging, dataset: pathlib.Path, version: str) -> None:
  """Moves the staged version to its final path; see `versions.announce`."""
  target = layout.version_folder(dataset, version)
  durable.make_folder(target.parent)
  if target.exists():  # A damaged version of the same name: see build_dataset.
    os.rename(target, staging.root / 'damaged')
  durable.publish(staging.version, target)


def write_pointer(
  staging: Staging, pointer: pathlib.Path, version: str
) -> None:
  """Writes a pointer file, such as `CURRENT`, to a published version."""
  with staging.atomic_path(pointer) as path:
    path.write_text(version + '\n')
    durable.sync(path)
  durable.sync(pointer.parent)
