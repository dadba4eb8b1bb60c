"""Current version, versions by date (backfill), and retention."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Collection

from absl import logging

from pipelines.publishing import staging as staging_lib
from tff_algos.core import checks, durable
from tff_algos.data import dates, layout, leases

_NAME = re.compile(r'[0-9a-f]{16}')


@dataclasses.dataclass(frozen=True)
class Publication:
  """How a version is published.

  Attributes:
    as_of: Date of the version, see `dates.parse`; None for none.
    force: Whether to rebuild an existing version.
    keep_versions: Number of latest versions to keep; None for all.
    needed: Names of versions that are kept beyond these.
  """

  as_of: str | None = None
  force: bool = False
  keep_versions: int | None = None
  needed: Collection[str] = ()

  def __post_init__(self) -> None:
    if self.as_of is not None:
      object.__setattr__(self, 'as_of', dates.parse(self.as_of))
    if self.keep_versions is not None:
      checks.check_int('keep_versions', self.keep_versions, minimum=1)


def announce(
  staging: staging_lib.Staging,
  dataset: pathlib.Path,
  version: str,
  as_of: str | None,
) -> bool:
  """Makes a published version visible to readers.

  Args:
    staging: Staging folder of the dataset.
    dataset: Folder of the dataset.
    version: The version.
    as_of: Date of the version, see `dates.parse`.

  Returns:
    Whether the version is the current one now; False if another version has a
    later date (backfill), unless its build was killed and there is no current.

  Raises:
    DataError: If `CURRENT` is damaged, and a later date is recorded.
  """
  # Modification times order the versions for retention.
  os.utime(layout.version_folder(dataset, version))
  if as_of is not None:
    durable.make_folder(dataset / layout.AS_OF)
    staging_lib.write_pointer(staging, dataset / layout.AS_OF / as_of, version)
    # A build that is killed here has recorded its date; its next start ends it.
    is_latest = dates.recorded(dataset)[-1] == as_of
    if not is_latest and _current(dataset) is not None:
      return _current(dataset) == version
  staging_lib.write_pointer(staging, dataset / layout.CURRENT, version)
  return True


def remove_old(
  staging: staging_lib.Staging,
  dataset: pathlib.Path,
  version: str,
  keep_versions: int,
  needed: Collection[str] = (),
) -> tuple[str, ...]:
  """Applies retention: removes the versions published or reused longest ago.

  The current version, versions in use (see `leases`) and other folders are
  never removed. Records of dates are kept, so that a date never resolves to
  another version.

  Args:
    staging: Staging folder of the dataset.
    dataset: Folder of the dataset.
    version: The version just published, which is kept as well.
    keep_versions: Number of latest versions to keep, >= 1.
    needed: Names of versions that are kept beyond these.

  Returns:
    Names of the removed versions, the oldest first.
  """
  staying = {version, _current(dataset), *needed}
  folders = sorted(
    (
      path
      for path in (dataset / layout.VERSIONS).iterdir()
      if _NAME.fullmatch(path.name) and path.is_dir()
    ),
    key=lambda path: (path.stat().st_mtime_ns, path.name),
  )
  removed = []
  for folder in folders[:-keep_versions]:
    if folder.name not in staying and _retire(staging, folder):
      removed.append(folder.name)
  return tuple(removed)


def _retire(staging: staging_lib.Staging, folder: pathlib.Path) -> bool:
  """Removes a version atomically, unless it is in use."""
  retired = staging.root / f'retired-{folder.name}'
  if not (folder / layout.MANIFEST).exists():
    os.rename(folder, retired)  # An incomplete version cannot be in use.
    return True
  with leases.forbid(folder) as is_free:
    if is_free:
      os.rename(folder, retired)
    else:
      logging.info('Version %s is in use and stays.', folder.name)
  return is_free


def _current(dataset: pathlib.Path) -> str | None:
  try:
    return layout.read_pointer(dataset / layout.CURRENT)
  except FileNotFoundError:
    return None
