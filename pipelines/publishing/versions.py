"""Which version is current, which was made for a date, which are removed."""

import dataclasses
import os
import pathlib
import re

from absl import logging

from pipelines.publishing import staging as staging_lib
from tff_algos.core import checks, durable
from tff_algos.data import dates, layout, leases

_NAME = re.compile(r'[0-9a-f]{16}')


@dataclasses.dataclass(frozen=True)
class Publication:
  """How a version is published.

  Attributes:
    as_of: Date that the version is made for, see `dates.parse`; None for none.
    force: Whether to build a version also if it is there already.
    keep_versions: Versions that stay, the current one included; None for all.
  """

  as_of: str | None = None
  force: bool = False
  keep_versions: int | None = None

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
  """Makes a version that is in its place known to readers.

  Args:
    staging: Of the dataset.
    dataset: Its folder.
    version: The version.
    as_of: The date that it was made for, as `dates.parse` returns it.

  Returns:
    Whether the version is the current one now: it is not if another one was
    made for a later date.
  """
  # The order in which versions are removed.
  os.utime(layout.version_folder(dataset, version))
  if as_of is not None:
    durable.make_folder(dataset / layout.AS_OF)
    staging_lib.write_pointer(staging, dataset / layout.AS_OF / as_of, version)
    if dates.recorded(dataset)[-1] != as_of:
      return _current(dataset) == version
  staging_lib.write_pointer(staging, dataset / layout.CURRENT, version)
  return True


def remove_old(
  staging: staging_lib.Staging,
  dataset: pathlib.Path,
  version: str,
  keep_versions: int,
) -> tuple[str, ...]:
  """Removes the versions that were published or found again longest ago.

  Never the current one, nor one that is open somewhere (see `leases`), nor
  what is no version. Records of dates stay, so that nobody is given another
  version for a date.

  Args:
    staging: Of the dataset.
    dataset: Its folder.
    version: The one just published, which stays as well.
    keep_versions: How many stay, if they may go.

  Returns:
    The names of those removed, the oldest first.
  """
  staying = {version, _current(dataset)}
  folders = sorted(
    (
      path
      for path in (dataset / layout.VERSIONS).iterdir()
      if _NAME.fullmatch(path.name) and path.is_dir()
    ),
    key=lambda path: (path.stat().st_mtime_ns, path.name),
  )
  removed = []
  for folder in folders:
    if len(folders) - len(removed) <= keep_versions:
      break
    if folder.name not in staying and _retire(staging, folder):
      removed.append(folder.name)
  return tuple(removed)


def _retire(staging: staging_lib.Staging, folder: pathlib.Path) -> bool:
  """Takes a version away at once, unless it is in use."""
  retired = staging.root / f'retired-{folder.name}'
  if not (folder / layout.MANIFEST).exists():
    os.rename(folder, retired)  # Half of one: nobody can have it open.
    return True
  with leases.forbid(folder) as is_free:
    if is_free:
      os.rename(folder, retired)
    else:
      logging.info('Version %s is in use and stays.', folder.name)
  return is_free


def _current(dataset: pathlib.Path) -> str | None:
  try:
    return (dataset / layout.CURRENT).read_text().strip()
  except FileNotFoundError:
    return None
