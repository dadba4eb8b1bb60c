"""Snapshots: content-addressed copies of a folder in an object store.

    <address>/HEAD.json            the published snapshot (`pointer`)
    <address>/snapshots/<sha256>   JSON: files, links and folders of a snapshot
    <address>/objects/<sha256>     content of a file

Objects are written before the snapshot that lists them, and that before the
pointer that names it; none is ever changed. So a reader who follows the pointer
sees a whole snapshot, and unchanged files are stored once.
"""

import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from tff_algos.core import durable, errors, records
from tff_algos.stores import objects as objects_lib

OBJECTS = 'objects'
SNAPSHOTS = 'snapshots'
# Objects of no snapshot that are younger are kept: a process may be uploading
# or reading them.
KEPT = datetime.timedelta(days=1)

_Value = TypeVar('_Value')

_NUM_REQUESTS = 8
# A file that was changed this shortly before it was hashed may change again
# without another time of modification.
_CLOCK_TICK_SECONDS = 2


class Snapshot(NamedTuple):
  """Content of a folder; names are relative to it, with slashes.

  Attributes:
    files: Name -> `size_bytes` and `sha256`.
    links: Name of a symbolic link -> target, relative to the link.
    folders: Name -> time of modification, nanoseconds since 1970: retention
      goes by it.
  """

  files: Mapping[str, Mapping[str, Any]] = {}
  links: Mapping[str, str] = {}
  folders: Mapping[str, int] = {}

  def part(self, folder: str) -> 'Snapshot':
    """Returns the content of a folder in it; all of it for an empty name."""
    if not folder:
      return self
    return Snapshot(
      _below(self.files, folder),
      _below(self.links, folder),
      _below(self.folders, folder),
    )


def object_name(entry: Mapping[str, Any]) -> str:
  """Returns the name of the object of a file."""
  return f'{OBJECTS}/{entry["sha256"]}'


def read(objects: objects_lib.Objects, sha256: str | None) -> Snapshot:
  """Returns a snapshot; an empty one for None.

  Raises:
    DataError: If it is damaged, or a name or link, as it is spelled, leads out
      of the folder.
    FileNotFoundError: If it is not there any more.
  """
  if sha256 is None:
    return Snapshot()
  content = objects.read(f'{SNAPSHOTS}/{sha256}')
  if hashlib.sha256(content).hexdigest() != sha256:
    raise errors.DataError(
      f'{objects.address}/{SNAPSHOTS}/{sha256} is damaged. Publish the folder '
      'again'
    )
  snapshot = Snapshot(**json.loads(content))
  for name in (*snapshot.files, *snapshot.links, *snapshot.folders):
    target = snapshot.links.get(name, '')
    place = os.path.join(os.path.dirname(name), target)
    if not (_is_inside(name) and _is_inside(place)) or os.path.isabs(target):
      raise errors.DataError(
        f'{objects.address}/{SNAPSHOTS}/{sha256} has {name!r}, which leads out '
        'of its folder, and is not written by this library. Publish the folder '
        'again'
      )
  return snapshot


def _is_inside(path: str) -> bool:
  """Returns whether a relative path stays in its folder."""
  return (
    not os.path.isabs(path) and os.path.normpath(path).split('/')[0] != '..'
  )


class Publisher:
  """Uploads the files of a folder; remembers hashes of unchanged files.

  One writer's alone: it lists the objects that are there once.
  """

  def __init__(
    self, objects: objects_lib.Objects, folder: pathlib.Path
  ) -> None:
    """Takes the folder and its address."""
    self._objects = objects
    self._folder = folder
    # Name -> (state of the file, entry).
    self._hashed: dict[str, tuple[tuple[int, ...], Mapping[str, Any]]] = {}
    # Name of an object -> its size.
    self._listed: dict[str, int] | None = None

  def upload(self, known: Snapshot) -> str:
    """Uploads a snapshot of the folder as it is now.

    Hidden files and folders, and files that are being written (`*.writing`),
    are left out: they belong to running processes.

    Args:
      known: The published snapshot. Those of its objects that are missing or
        have another size are uploaded again.

    Returns:
      SHA-256 of the snapshot, which is not published yet.

    Raises:
      ConfigError: If a link leads out of the folder.
    """
    links, folders, names = {}, {}, []
    for path in _walk(self._folder):
      name = path.relative_to(self._folder).as_posix()
      if path.is_symlink():
        links[name] = self._target(path)
      elif path.is_dir():
        folders[name] = path.stat().st_mtime_ns
      else:
        names.append(name)
    if self._listed is None:
      listed = self._objects.list(OBJECTS)
      self._listed = {name: one.size for name, one in listed.items()}
    sizes = self._listed
    # Not all that is listed: what no snapshot needs may be deleted meanwhile.
    there = {
      entry['sha256']
      for entry in known.files.values()
      if sizes.get(object_name(entry)) == entry['size_bytes']
    }
    entries = _in_parallel(lambda name: self._upload_file(name, there), names)
    sizes.update((object_name(one), one['size_bytes']) for one in entries)
    files = dict(zip(names, entries, strict=True))
    content = json.dumps(
      Snapshot(files, links, folders)._asdict(), sort_keys=True
    ).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    self._objects.write(f'{SNAPSHOTS}/{sha256}', content)
    return sha256

  def _upload_file(self, name: str, there: set[str]) -> Mapping[str, Any]:
    path = self._folder / name
    while True:
      state = _state(path)
      entry = self._entry(path, name, state)
      if entry['sha256'] not in there:
        self._objects.upload(path, object_name(entry))
      if _state(path) == state:  # Else a log has grown meanwhile.
        return entry

  def _entry(
    self, path: pathlib.Path, name: str, state: tuple[int, ...]
  ) -> Mapping[str, Any]:
    if self._hashed.get(name, ((), {}))[0] == state:
      return self._hashed[name][1]
    entry = records.describe_file(path)
    if time.time() - path.stat().st_mtime > _CLOCK_TICK_SECONDS:
      self._hashed[name] = (state, entry)
    return entry

  def _target(self, path: pathlib.Path) -> str:
    target = os.readlink(path)
    inside = os.path.normpath(path.parent / target)
    if os.path.isabs(target) or not pathlib.Path(inside).is_relative_to(
      self._folder
    ):
      raise errors.ConfigError(
        f'{path} is a link to {target}, out of the folder that is published at '
        f'{self._objects.address}; copy what it leads to'
      )
    return target


def fetch(
  objects: objects_lib.Objects,
  snapshot: Snapshot,
  folder: pathlib.Path,
  scratch: pathlib.Path,
) -> None:
  """Makes a folder equal to a snapshot; downloads what differs.

  A folder that is missing is moved into place when it is complete.

  Args:
    objects: Objects of the address.
    snapshot: The snapshot.
    folder: The folder; its parent exists.
    scratch: Folder on the same file system, which is made and removed.

  Raises:
    DataError: If an object is damaged.
    FileNotFoundError: If an object is not there any more.
  """
  shutil.rmtree(scratch, ignore_errors=True)
  missing = [
    name
    for name, entry in snapshot.files.items()
    if not _is_same(folder / name, entry)
  ]
  try:
    for name in snapshot.folders:
      (scratch / name).mkdir(parents=True, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True)
    _in_parallel(
      lambda name: _download(objects, snapshot.files[name], scratch / name),
      missing,
    )
    durable.sync_all(scratch)
    for name, target in snapshot.links.items():
      (scratch / name).symlink_to(target)
    _move(scratch, folder)
    _remove_others(folder, snapshot)
  finally:
    shutil.rmtree(scratch, ignore_errors=True)
  for name, time_ns in sorted(snapshot.folders.items(), reverse=True):
    os.utime(folder / name, ns=(time_ns, time_ns))
    durable.sync(folder / name)
  durable.sync(folder)


def remove_unused(objects: objects_lib.Objects, sha256: str) -> None:
  """Deletes objects and snapshots of the address that are not used any more.

  Those of the last day stay, see `KEPT`.

  Args:
    objects: Objects of the address.
    sha256: The published snapshot.
  """
  used = read(objects, sha256)
  names = {object_name(entry) for entry in used.files.values()}
  names.add(f'{SNAPSHOTS}/{sha256}')
  before = datetime.datetime.now(datetime.UTC) - KEPT
  for kind in (OBJECTS, SNAPSHOTS):
    for name, listed in objects.list(kind).items():
      if name not in names and listed.written < before:
        objects.delete(name)


def _walk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the folders, links and finished files of a folder, sorted."""
  for path in sorted(folder.iterdir()):
    if not path.name.startswith('.') and path.suffix != '.writing':
      yield path
      if path.is_dir() and not path.is_symlink():
        yield from _walk(path)


def _state(path: pathlib.Path) -> tuple[int, ...]:
  found = path.stat()
  return found.st_size, found.st_mtime_ns, found.st_ino


def _is_same(path: pathlib.Path, entry: Mapping[str, Any]) -> bool:
  is_file = path.is_file() and not path.is_symlink()
  return is_file and records.describe_file(path) == entry


def _download(
  objects: objects_lib.Objects, entry: Mapping[str, Any], path: pathlib.Path
) -> None:
  objects.download(object_name(entry), path)
  if records.describe_file(path) != entry:
    raise errors.DataError(
      f'{objects.address}/{object_name(entry)} is damaged: its SHA-256 is '
      'another. Delete it, and publish the folder again'
    )


def _move(source: pathlib.Path, target: pathlib.Path) -> None:
  """Moves the content of a folder into another; folders before files.

  So what a pointer file names is there before the file.
  """
  if not os.path.lexists(target):
    os.rename(source, target)
    return
  is_merged = source.is_dir() and not source.is_symlink() and target.is_dir()
  if is_merged and not target.is_symlink():
    for path in sorted(source.iterdir(), key=lambda path: not path.is_dir()):
      _move(path, target / path.name)
    return
  if target.is_dir() and not target.is_symlink():
    shutil.rmtree(target)
  elif source.is_dir():
    target.unlink()
  os.replace(source, target)


def _remove_others(folder: pathlib.Path, snapshot: Snapshot) -> None:
  """Removes what a snapshot does not have."""
  for path in folder.iterdir():
    name = path.relative_to(folder).as_posix()
    if path.is_dir() and not path.is_symlink():
      if name in snapshot.folders:
        _remove_others(path, snapshot.part(name))
      else:
        shutil.rmtree(path)
    elif name not in snapshot.files and name not in snapshot.links:
      path.unlink()


def _in_parallel(
  function: Callable[[str], Any], names: Iterable[str]
) -> list[Any]:
  """Returns the results in order; the first error cancels what is left."""
  with concurrent.futures.ThreadPoolExecutor(_NUM_REQUESTS) as pool:
    return list(pool.map(function, names))


def _below(entries: Mapping[str, _Value], folder: str) -> dict[str, _Value]:
  """Returns the entries in a folder, by their names in it."""
  return {
    name.removeprefix(f'{folder}/'): value
    for name, value in entries.items()
    if name.startswith(f'{folder}/')
  }
