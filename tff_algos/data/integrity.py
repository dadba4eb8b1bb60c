"""Integrity check of a dataset version: complete and unchanged files."""

import pathlib
from collections.abc import Mapping
from typing import Any

from tff_algos.core import errors, records, sealed_json
from tff_algos.data import dates, layout
from tff_algos.data import schema as schema_lib

BUILD_AGAIN = 'Build the dataset again with binaries.preprocess.'


def find(
  dataset: pathlib.Path, as_of: str | None, version: str | None
) -> pathlib.Path:
  """Returns the folder of a version by date, by name, or of the current one.

  Raises:
    ConfigError: If `as_of` is no date, or both are given.
    DataError: If there is no such version.
  """
  if as_of is not None and version is not None:
    raise errors.ConfigError(
      f'as_of {as_of!r} and version {version!r} each name a version; give one '
      'of them'
    )
  if as_of is not None:
    return find_as_of(dataset, as_of)
  if version is None:
    return find_current(dataset)
  folder = layout.version_folder(dataset, version)
  if not folder.is_dir():
    raise errors.DataError(
      f'{dataset} has no version {version!r}; it was removed, or mend the name'
    )
  return folder


def find_current(dataset: pathlib.Path) -> pathlib.Path:
  """Returns the folder of the published version.

  Raises:
    DataError: If nothing is published there.
    OSError: If the disk fails.
  """
  if not dataset.is_dir():
    raise errors.DataError(
      f'no federated dataset at {dataset}: the folder does not exist. '
      'Make one with binaries.preprocess, or mend the path.'
    )
  before = None
  while True:
    version = _read_current(dataset)
    folder = layout.version_folder(dataset, version)
    if folder.is_dir():
      return folder
    # Meanwhile the version may have been replaced and removed: read it again.
    if version == before:
      raise errors.DataError(
        f'{dataset / layout.CURRENT} names version {version!r}, but {folder} '
        f'does not exist. {BUILD_AGAIN}'
      )
    before = version


def _read_current(dataset: pathlib.Path) -> str:
  try:
    return layout.read_pointer(dataset / layout.CURRENT)
  except FileNotFoundError:
    raise errors.DataError(
      f'{dataset} is not a published federated dataset: it has no file '
      f'{layout.CURRENT}, which is written last. Let binaries.preprocess '
      'finish, or mend the path.'
    ) from None


def find_as_of(dataset: pathlib.Path, as_of: str) -> pathlib.Path:
  """Returns the folder of the version that was published for a date.

  Raises:
    ConfigError: If `as_of` is no date.
    DataError: If no version is recorded for it, or the version was removed.
    OSError: If the disk fails.
  """
  date = dates.find_recorded(dataset, as_of)
  version = dates.version_of(dataset, date)
  folder = layout.version_folder(dataset, version)
  if not folder.is_dir():
    raise errors.DataError(
      f'version {version!r} of {dataset}, which was made for {date}, is no '
      'longer there: binaries.preprocess with --keep_versions removes old '
      f'versions. Run it again with --as_of={date}.'
    )
  return folder


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
  """Returns the manifest of a version.

  Raises:
    DataError: If it is missing, damaged, of another schema version or of
      another dataset version.
    OSError: If the disk fails.
  """
  path = folder / layout.MANIFEST
  manifest = sealed_json.load(path, BUILD_AGAIN)
  found = manifest.get('schema_version')
  if found != schema_lib.SCHEMA_VERSION:
    raise errors.DataError(
      f'{folder} has schema version {found!r}, this code reads version '
      f'{schema_lib.SCHEMA_VERSION}. {BUILD_AGAIN}'
    )
  if manifest.get('checksum') != sealed_json.checksum(manifest):
    raise errors.DataError(
      f'{path} is damaged: it has been changed since it was written. '
      f'{BUILD_AGAIN}'
    )
  if manifest['version'] != folder.name:
    raise errors.DataError(
      f'{path} belongs to version {manifest["version"]!r}, not to '
      f'{folder.name!r}. {BUILD_AGAIN}'
    )
  return manifest


def check_files(
  folder: pathlib.Path, manifest: Mapping[str, Any], verify: bool
) -> None:
  """Checks that every file exists and is undamaged.

  Args:
    folder: Folder of the version.
    manifest: Its manifest.
    verify: Whether to check the SHA-256 of shards, too. That of all other files
      is always checked; damage of a shard is also found when it is read.

  Raises:
    DataError: If a file is missing or damaged.
  """
  for name, expected in manifest['files'].items():
    path = folder / name
    if not path.is_file():
      raise errors.DataError(f'{path} is missing. {BUILD_AGAIN}')
    size = path.stat().st_size
    if size != expected['size_bytes']:
      raise errors.DataError(
        f'{path} has {size} bytes, the manifest says '
        f'{expected["size_bytes"]}: it is damaged. {BUILD_AGAIN}'
      )
    is_checked = verify or path.suffix != layout.SHARD_SUFFIX
    if is_checked and records.file_sha256(path) != expected['sha256']:
      raise errors.DataError(
        f'{path} is damaged: its SHA-256 is not the one in the manifest. '
        f'{BUILD_AGAIN}'
      )
