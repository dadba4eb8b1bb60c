"""Local copies of objects that other programs wrote, such as raw data.

The folder of mirrors has `<hash of the address>/<name>`, the copy, and beside
it `<name>.listing.json`, the objects that it has, and `.lock`.
"""

import contextlib
import hashlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Generator
from typing import NamedTuple

from tff_algos.core import cache_folder, durable, errors, folder_lock
from tff_algos.stores import mirror
from tff_algos.stores import objects as objects_lib

# A worker waits as long for others that hold a copy without some of its files.
_PATIENCE_SECONDS = 60.0


class Copy(NamedTuple):
  """A copy on this machine.

  Attributes:
    address: Address of the objects.
    folder: The folder that has them.
    state: Hash of their names, sizes, tags and times.
    is_deep: Whether it has those of inner folders.
  """

  address: str
  folder: pathlib.Path
  state: str
  is_deep: bool


@contextlib.contextmanager
def held(address: str, *, is_deep: bool = True) -> Generator[Copy]:
  """Copies the objects under an address; yields the copy.

  Objects that did not change since the last copy are not read again. Those that
  change meanwhile are, so that the copy is what was there at one time. It stays
  as it is within the block.

  Args:
    address: Address of the folder.
    is_deep: Whether those of inner folders, too.

  Raises:
    DataError: If there are no objects.
    InfrastructureError: If the store cannot be reached.
    WorkdirBusyError: If another process of this machine copies, or reads what
      has changed since.
  """
  objects = objects_lib.Objects(address)
  place = mirror.place_of(objects.address, 'plain' if is_deep else 'flat')
  folder = place / objects.address.rpartition('/')[2]
  with _copied(objects, folder, is_deep=is_deep) as state:
    yield Copy(address, folder, state, is_deep)


@contextlib.contextmanager
def held_elsewhere(copy: Copy) -> Generator[None]:
  """Makes a copy of another machine here, under the same path.

  Where its path is seen, or another process has made it, it is there already.

  Raises:
    InfrastructureError: If the objects have changed or gone, the store cannot
      be reached, or the folder cannot be written.
    WorkdirBusyError: If a file is missing in a copy that others read.
  """
  objects = objects_lib.Objects(copy.address)
  try:
    with _copied(objects, copy.folder, copy.state, is_deep=copy.is_deep):
      yield
  except OSError as error:
    if not errors.is_of_disk(error):
      raise
    raise errors.InfrastructureError(
      f'a worker cannot copy {copy.address} to {copy.folder}: '
      f'{error.strerror}. The copy has the same path on all machines; choose '
      f'another by ${cache_folder.VARIABLE} of the program that was started'
    ) from None


@contextlib.contextmanager
def _copied(
  objects: objects_lib.Objects,
  folder: pathlib.Path,
  expected: str | None = None,
  *,
  is_deep: bool,
) -> Generator[str]:
  """Copies to a folder, and holds it; yields the state of the copy.

  Args:
    objects: The objects.
    folder: The folder; other processes may hold it, too.
    expected: The only state to be copied, waiting for others; None for any,
      without waiting.
    is_deep: As of `held`.
  """
  # Never the folder itself, whatever its name is.
  listing = folder.with_name(f'{folder.name}.listing.json')
  busy = f'another process of this machine reads the copy of {objects.address}'
  durable.make_folder(folder.parent)
  while True:
    patience = 0.0 if expected is None else math.inf
    with folder_lock.shared(folder.parent, busy, patience):
      there = _list(objects, is_deep)
      spelled = json.dumps(there, sort_keys=True)
      state = hashlib.sha256(spelled.encode()).hexdigest()
      if expected not in (None, state):
        raise errors.InfrastructureError(
          f'what is at {objects.address} has changed meanwhile; run this again'
        )
      if not there:
        raise errors.DataError(
          f'nothing is at {objects.address}; mend the address, or upload the '
          'files'
        )
      if there == _read(listing, folder):
        yield state
        return
    # A file may be gone from a copy that the program holds, which waits for
    # this; workers that only list hold it for a moment.
    lacks_file = None in _read(listing, folder).values()
    patience = min(patience, _PATIENCE_SECONDS if lacks_file else 1.0)
    try:
      with folder_lock.exclusive(folder.parent, busy, patience):
        _update(objects, there, folder, listing)
    except errors.WorkdirBusyError:
      if expected is None or None in _read(listing, folder).values():
        raise
      # Perhaps another worker has made the copy, and holds it.


def _update(
  objects: objects_lib.Objects,
  there: dict[str, list[object]],
  folder: pathlib.Path,
  listing: pathlib.Path,
) -> None:
  """Brings a copy up to a listing of objects, unless it is so."""
  here = _read(listing, folder)
  if here == there:
    return
  # What is written next is neither the old nor the new copy.
  listing.unlink(missing_ok=True)
  durable.sync(folder.parent)
  _copy(objects, here, there, folder)
  durable.sync_all(folder)
  with durable.replacing(listing) as file:
    json.dump(there, file)


def _list(
  objects: objects_lib.Objects, is_deep: bool
) -> dict[str, list[object]]:
  """Returns name -> size, tag and time of the objects."""
  return {
    name: [one.size, one.e_tag, one.written.isoformat()]
    for name, one in objects.list().items()
    if not name.endswith('/')  # Consoles of clouds write such for folders.
    if is_deep or '/' not in name
  }


def _read(
  listing: pathlib.Path, folder: pathlib.Path
) -> dict[str, list[object] | None]:
  """Returns the listing of a copy; an empty one if there is no whole copy.

  A file that is missing or has another size, as another program has removed or
  cut it, has None.
  """
  try:
    here = json.loads(listing.read_text()) if folder.is_dir() else {}
  except (FileNotFoundError, ValueError):
    return {}
  return {
    name: state if _has_size(folder / name, state[0]) else None
    for name, state in here.items()
  }


def _has_size(path: pathlib.Path, size: int) -> bool:
  return path.is_file() and path.stat().st_size == size


def _remove_empty(inner: pathlib.Path, folder: pathlib.Path) -> None:
  """Removes a folder and those above it that are empty."""
  with contextlib.suppress(OSError):
    while inner != folder:
      inner.rmdir()
      inner = inner.parent


def _copy(
  objects: objects_lib.Objects,
  here: dict[str, list[object] | None],
  there: dict[str, list[object]],
  folder: pathlib.Path,
) -> None:
  if not here:
    shutil.rmtree(folder, ignore_errors=True)
  for name in here.keys() - there.keys():
    (folder / name).unlink(missing_ok=True)
    # An object may have the name of the folder now.
    _remove_empty((folder / name).parent, folder)
  part = folder.with_name(f'{folder.name}.fetching')
  for name, state in there.items():
    if here.get(name) != state:
      durable.make_folder((folder / name).parent)
      # One that was removed meanwhile is not in the next listing either.
      with contextlib.suppress(FileNotFoundError):
        objects.download(name, part)
        os.replace(part, folder / name)
