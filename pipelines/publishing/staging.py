"""Builds a version beside the published ones, and publishes it whole.

A dataset's folder is locked while it is built. Whatever a dead run left
behind is removed by the next one.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Generator

from tff_algos.core import durable, errors
from tff_algos.data import layout

_PREFIX = '.staging-'
# What a full disk says, or one that refuses.
DISK_ERRORS = (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC)


class Staging:
  """A folder in which one version grows.

  Attributes:
    root: The folder; everything in it goes when the run ends.
    version: What will be published.
    work: Files that stages hand to one another.
  """

  def __init__(self, root: pathlib.Path) -> None:
    self.root = root
    self.version = root / 'version'
    self.work = root / 'work'

  @contextlib.contextmanager
  def atomic_path(self, path: pathlib.Path) -> Generator[pathlib.Path]:
    """Gives a path to write to, which becomes `path` on success.

    Safe when an engine runs the same step twice, even at the same time.
    """
    descriptor, name = tempfile.mkstemp(dir=self.root / 'tmp')
    os.close(descriptor)
    yield pathlib.Path(name)
    os.chmod(name, 0o644)
    os.replace(name, path)


@contextlib.contextmanager
def open_staging(dataset: pathlib.Path) -> Generator[Staging]:
  """Locks a dataset's folder and gives a place to build a version in.

  Raises:
    WorkdirBusyError: If another run is building there.
    InfrastructureError: If the disk is full or refuses to be written.
  """
  durable.make_folder(dataset)
  lock = os.open(dataset, os.O_RDONLY | os.O_DIRECTORY)
  try:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise errors.WorkdirBusyError(
        f'another run is writing to {dataset}; wait for it, or choose another '
        'workdir.'
      ) from None
    for leftover in dataset.glob(f'{_PREFIX}*'):
      shutil.rmtree(leftover)
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
      shutil.rmtree(root)
  finally:
    os.close(lock)


@contextlib.contextmanager
def _temporary_files_in(folder: pathlib.Path) -> Generator[None]:
  """Sends temporary files there: some of Beam's runners forget theirs."""
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
  """Puts the staged version in its place; `versions.announce` is next."""
  target = layout.version_folder(dataset, version)
  durable.make_folder(target.parent)
  if target.exists():  # A damaged version of the same name: see build_dataset.
    os.rename(target, staging.root / 'damaged')
  durable.publish(staging.version, target)


def write_pointer(
  staging: Staging, pointer: pathlib.Path, version: str
) -> None:
  """Makes a file, such as `CURRENT`, name a version that is in its place."""
  with staging.atomic_path(pointer) as path:
    path.write_text(version + '\n')
    durable.sync(path)
  durable.sync(pointer.parent)
