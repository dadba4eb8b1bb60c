"""Staging folder of a version, and its atomic publication.

A dataset's folder is locked while it is built. Files left by a killed run are
removed by the next one.
"""

import contextlib
import errno
import functools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

from absl import logging

from tff_algos.core import durable, errors, folder_lock
from tff_algos.data import layout
from tff_algos.stores import objects

_Item = TypeVar('_Item')
_Result = TypeVar('_Result')

_PREFIX = '.staging-'
_NUM_THREADS = 16
# Results that wait for their turn at most.
_CHUNK = 64
# File of a staging folder that names its objects.
_ADDRESS = 'address'
# Those of `errors.OF_DISKS` that reading meets, too.
_OF_ACCESS = (errno.EACCES, errno.EIO, errno.EPERM, errno.ESTALE)


class Staging:
  """Staging folder of one version, which this process and all workers see.

  Workers hand over files by `handing_over`, and all read them by `read`.

  Attributes:
    root: The folder; removed when the run ends.
    version: Files to be published.
    work: Intermediate files of the steps.
  """

  def __init__(self, root: pathlib.Path) -> None:
    self.root = root
    self.version = root / 'version'
    self.work = root / 'work'

  def handing_over(
    self, path: pathlib.Path
  ) -> contextlib.AbstractContextManager[pathlib.Path]:
    """Yields a temporary path, whose file is at `path` for all on success.

    Safe if a runner executes the same step twice, even concurrently.

    Args:
      path: Path in `version` or `work`.
    """
    return self.atomic_path(path)

  def read(
    self, path: pathlib.Path, start: int = 0, stop: int | None = None
  ) -> bytes:
    """Returns bytes `start` ... `stop` - 1 of a file that was handed over."""
    with open(path, 'rb') as file:
      file.seek(start)
      return file.read(-1 if stop is None else stop - start)

  def part(self, kind: str, number: int) -> pathlib.Path:
    """Returns the path in `work` of one of several files of a kind."""
    return self.work / f'{kind}-{number:05d}'

  def find(self, prefix: str) -> list[pathlib.Path]:
    """Returns the files of `work` whose names have a prefix, sorted."""
    return sorted(self.work.glob(f'{prefix}*'))

  def gather(self) -> None:
    """Brings the files that workers wrote for `version` there."""

  def share(self, folder: pathlib.Path, name: str) -> pathlib.Path:
    """Shows a folder to workers; returns its path for `fetched` and `read`.

    Args:
      folder: A folder of this machine.
      name: Another one for each folder.
    """
    del name
    return folder

  @contextlib.contextmanager
  def fetched(self, folder: pathlib.Path) -> Generator[pathlib.Path]:
    """Yields a folder of this worker with the content of a shared one."""
    yield folder

  @contextlib.contextmanager
  def atomic_path(self, path: pathlib.Path) -> Generator[pathlib.Path]:
    """Yields a temporary path, renamed to `path` on success; in this process.

    Args:
      path: Path on the file system of the dataset.
    """
    descriptor, name = tempfile.mkstemp(dir=self.root / 'tmp')
    os.close(descriptor)
    yield pathlib.Path(name)
    os.chmod(name, 0o644)
    os.replace(name, path)


class StagingInStore(Staging):
  """Staging folder of this process; workers use objects of a store instead.

  They need to see no folder of this machine.

  Attributes:
    address: Address of the objects, whose names are paths from `root`.
  """

  def __init__(self, root: pathlib.Path, address: str) -> None:
    super().__init__(root)
    self.address = address

  @contextlib.contextmanager
  def handing_over(self, path: pathlib.Path) -> Generator[pathlib.Path]:
    """Yields a path on this machine; its file becomes an object."""
    with tempfile.TemporaryDirectory() as folder:
      temporary = pathlib.Path(folder, path.name)
      yield temporary
      self._objects.upload(temporary, self._name(path))

  def read(
    self, path: pathlib.Path, start: int = 0, stop: int | None = None
  ) -> bytes:
    """Reads a range of an object."""
    if stop is None:
      return self._objects.read(self._name(path))
    return self._objects.read_range(self._name(path), start, stop)

  def find(self, prefix: str) -> list[pathlib.Path]:
    """Returns the paths of objects."""
    start = f'{self.work.name}/{prefix}'
    names = self._objects.list(self.work.name)
    return [
      self.root / name for name in sorted(names) if name.startswith(start)
    ]

  def gather(self) -> None:
    """Downloads objects."""
    names = [*self._objects.list(self.version.name)]
    for _ in in_threads(
      lambda name: self._objects.download(name, self.root / name), names
    ):
      pass

  def share(self, folder: pathlib.Path, name: str) -> pathlib.Path:
    """Uploads all files of a folder."""
    shared = self.work / name
    for path in sorted(folder.rglob('*')):
      if path.is_file():
        self._objects.upload(
          path, self._name(shared / path.relative_to(folder))
        )
    return shared

  @contextlib.contextmanager
  def fetched(self, folder: pathlib.Path) -> Generator[pathlib.Path]:
    """Downloads all files of a folder, which is removed after the block."""
    with tempfile.TemporaryDirectory() as temporary:
      for name in self._objects.list(self._name(folder)):
        path = pathlib.Path(temporary, (self.root / name).relative_to(folder))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._objects.download(name, path)
      yield pathlib.Path(temporary)

  @functools.cached_property
  def _objects(self) -> objects.Objects:
    return objects.Objects(self.address)

  def __reduce__(self):
    return StagingInStore, (self.root, self.address)

  def _name(self, path: pathlib.Path) -> str:
    return path.relative_to(self.root).as_posix()


@contextlib.contextmanager
def open_staging(
  dataset: pathlib.Path, handover: str | None = None
) -> Generator[Staging]:
  """Locks a dataset's folder and yields a staging folder.

  Args:
    dataset: Folder of the dataset.
    handover: Address of a folder of an object store by which workers hand over
      files; None if they see the dataset's folder.

  Raises:
    WorkdirBusyError: If another run is building there.
    InfrastructureError: If a disk is full, read-only or refuses access.
  """
  try:
    durable.make_folder(dataset)
    with folder_lock.exclusive(dataset, f'another run is writing to {dataset}'):
      for leftover in dataset.glob(f'{_PREFIX}*'):
        _remove(leftover)
      root = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=dataset))
      is_done = False
      try:
        staging = Staging(root)
        if handover is not None:
          address = f'{handover.rstrip("/")}/{root.name.removeprefix(".")}'
          (root / _ADDRESS).write_text(address)
          staging = StagingInStore(root, address)
        for folder in (staging.version, staging.work, root / 'tmp'):
          folder.mkdir()
        with _temporary_files_in(root / 'tmp'):
          yield staging
        is_done = True
      finally:
        # Workers of a build that failed may still write there; the next build
        # removes what is left.
        _remove(root, is_last=is_done)
  except OSError as error:
    if not errors.is_of_disk(error):
      raise
    place = pathlib.Path(error.filename or dataset)
    if place.is_relative_to(dataset):
      place = dataset
    elif error.errno in _OF_ACCESS:
      raise errors.InfrastructureError(
        f'cannot access {place}: {error.strerror}; check its permissions, '
        'and its disk'
      ) from None
    raise errors.InfrastructureError(
      f'cannot write to {place}: {error.strerror}. Make room, or choose '
      'another workdir.'
    ) from None


def _remove(root: pathlib.Path, *, is_last: bool = True) -> None:
  """Removes a staging folder, and its objects first.

  Args:
    root: The folder.
    is_last: Whether no worker writes objects any more; else the folder stays
      with their address alone, for the next build.
  """
  note = root / _ADDRESS
  if note.exists():
    address = note.read_text()
    try:
      objects.Objects(address).delete_all()
    except errors.UserError as error:
      logging.warning('Intermediate files stay at %s: %s', address, error)
      is_last = False
  if not note.exists() or is_last:
    shutil.rmtree(root, ignore_errors=True)
    return
  for path in root.iterdir():
    if path != note:
      shutil.rmtree(path, ignore_errors=True)


def in_threads(
  function: Callable[[_Item], _Result], items: Sequence[_Item]
) -> Iterator[_Result]:
  """Yields the results of a function in order; it waits for a store or disk."""
  with futures.ThreadPoolExecutor(_NUM_THREADS) as pool:
    for start in range(0, len(items), _CHUNK):
      yield from pool.map(function, items[start : start + _CHUNK])


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
