"""Version of a dataset in an object store; its tables are copied here."""

import contextlib
import pathlib
import shutil
import tempfile
from typing import Any

from tff_algos.core import cache_folder, durable, errors, folder_lock
from tff_algos.data import integrity, layout, shards
from tff_algos.stores import cached_object, pointer, snapshots
from tff_algos.stores import objects as objects_lib

# Default bound of what a reader keeps of the shards on local disk.
CACHE_BYTES = 8 << 30

_DATASET = 'dataset'
_PREFIX = 'version-'
_PATIENCE_SECONDS = 60.0
_TABLES = (
  *(layout.MANIFEST, layout.CLIENTS),
  *(layout.STATISTICS, layout.CLIENT_STATISTICS),
)


def open_version(
  address: str,
  as_of: str | None,
  version: str | None,
  cache_bytes: int,
  stack: contextlib.ExitStack,
) -> tuple[pathlib.Path, dict[str, Any], shards.PublishedShards]:
  """Opens a version of a published dataset, or of that in a published workdir.

  Versions that are published later do not change it: objects never change.

  Args:
    address: Address of the dataset or the workdir.
    as_of: See `FederatedDataset.open`.
    version: See there.
    cache_bytes: Bound of the shards on local disk, in bytes.
    stack: Closes it.

  Returns:
    A local copy of its folder without shards, cards and dead letters; the
    content of `manifest.json`; its shards.

  Raises:
    DataError: If there is no such version, or it is damaged.
    InfrastructureError: If the store cannot be reached.
  """
  objects = objects_lib.Objects(address)
  cache = cache_folder.path() / 'stores'
  durable.make_folder(cache)
  place = _hold_folder(cache, stack)

  def fetch(sha256: str | None) -> tuple[pathlib.Path, snapshots.Snapshot]:
    snapshot, dataset = _find_dataset(snapshots.read(objects, sha256), address)
    folder = place / (dataset or _DATASET)
    names = {
      name
      for name in snapshot.files
      if name == layout.CURRENT or name.startswith(f'{layout.AS_OF}/')
    }
    _fetch(objects, snapshot, names, folder)
    found = integrity.find(folder, as_of, version)
    name = found.relative_to(folder).as_posix()
    names |= {f'{name}/{table}' for table in _TABLES} & snapshot.files.keys()
    _fetch(objects, snapshot, names, folder)
    return found, snapshot.part(name)

  folder, snapshot = pointer.follow(objects, fetch)
  manifest = integrity.read_manifest(folder)
  for name, expected in manifest['files'].items():
    if snapshot.files.get(name) != expected:
      raise errors.DataError(
        f'{name} of version {folder.name} at {address} is missing or is '
        f'another file than the manifest says. {integrity.BUILD_AGAIN}'
      )

  def open_shard(name: str) -> cached_object.CachedObject:
    entry = snapshot.files[name]
    return cached_object.CachedObject(
      objects, snapshots.object_name(entry), entry['size_bytes'], cache
    )

  opened = shards.PublishedShards(
    open_shard,
    {
      name: f'{objects.address}/{snapshots.object_name(entry)} ({name})'
      for name, entry in snapshot.files.items()
    },
    cache_bytes,
  )
  stack.callback(opened.close)
  return folder, manifest, opened


def _hold_folder(
  cache: pathlib.Path, stack: contextlib.ExitStack
) -> pathlib.Path:
  """Returns a new folder, locked; removes those of processes that are gone."""
  busy = f'another process opens a dataset in {cache}'
  with folder_lock.exclusive(cache, busy, _PATIENCE_SECONDS):
    for other in cache.glob(f'{_PREFIX}*'):
      with (
        # It is another user's, in use, or no folder of ours.
        contextlib.suppress(OSError, errors.UserError),
        folder_lock.exclusive(other, busy),
      ):
        shutil.rmtree(other, ignore_errors=True)
    made = tempfile.TemporaryDirectory(
      prefix=_PREFIX, dir=cache, ignore_cleanup_errors=True
    )
    place = pathlib.Path(stack.enter_context(made))
    stack.enter_context(folder_lock.exclusive(place, busy))
  return place


def _find_dataset(
  snapshot: snapshots.Snapshot, address: str
) -> tuple[snapshots.Snapshot, str]:
  for name in ('', _DATASET):
    part = snapshot.part(name)
    if layout.CURRENT in part.files:
      return part, name
  raise errors.DataError(
    f'no federated dataset is published at {address}. Publish one with '
    f'binaries.preprocess --workdir={address}, or mend the address'
  )


def _fetch(
  objects: objects_lib.Objects,
  snapshot: snapshots.Snapshot,
  names: set[str],
  folder: pathlib.Path,
) -> None:
  """Fetches some files, and makes all folders."""
  files = {name: snapshot.files[name] for name in names}
  some = snapshots.Snapshot(files, {}, snapshot.folders)
  snapshots.fetch(objects, some, folder, folder.with_name('fetching'))
