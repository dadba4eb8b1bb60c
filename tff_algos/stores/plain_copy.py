"""Local copies of objects that other programs wrote, such as raw data.

The folder of mirrors has `<hash of the address>/<name>`, the copy, and beside
it `<name>.listing.json`, the objects that it has.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Generator

from tff_algos.core import cache_folder, durable, errors, folder_lock
from tff_algos.stores import objects as objects_lib


@contextlib.contextmanager
def held(address: str) -> Generator[pathlib.Path]:
  """Copies all objects under an address; yields the folder that has them.

  Objects that did not change since the last copy are not read again. Those that
  change meanwhile are, so that the copy is what was there at one time. It stays
  as it is within the block.

  Args:
    address: Address of the folder.

  Raises:
    DataError: If there are no objects.
    InfrastructureError: If the store cannot be reached.
    WorkdirBusyError: If another process of this machine copies or reads it.
  """
  objects = objects_lib.Objects(address)
  key = hashlib.sha256(f'{objects.address} plain'.encode()).hexdigest()[:16]
  place = cache_folder.path() / 'stores' / key
  folder = place / objects.address.rpartition('/')[2]
  durable.make_folder(place)
  with folder_lock.exclusive(
    place, f'another process of this machine reads the copy of {address}'
  ):
    # Never the folder itself, whatever its name is.
    listing = place / f'{folder.name}.listing.json'
    here = _read(listing)
    while (there := _list(objects)) != here:
      # What is written next is neither the old nor the new copy.
      listing.unlink(missing_ok=True)
      durable.sync(place)
      _copy(objects, here, there, folder)
      durable.sync_all(folder)
      with durable.replacing(listing) as file:
        json.dump(there, file)
      here = there
    yield folder


def _list(objects: objects_lib.Objects) -> dict[str, list[object]]:
  """Returns name -> size, tag and time of all objects."""
  found: dict[str, list[object]] = {
    name: [one.size, one.e_tag, one.written.isoformat()]
    for name, one in objects.list().items()
    if not name.endswith('/')  # Consoles of clouds write such for folders.
  }
  if not found:
    raise errors.DataError(
      f'nothing is at {objects.address}; mend the address, or upload the files'
    )
  return found


def _read(listing: pathlib.Path) -> dict[str, list[object]]:
  try:
    return json.loads(listing.read_text())
  except FileNotFoundError:
    return {}


def _copy(
  objects: objects_lib.Objects,
  here: dict[str, list[object]],
  there: dict[str, list[object]],
  folder: pathlib.Path,
) -> None:
  if not here:
    shutil.rmtree(folder, ignore_errors=True)
  for name in here.keys() - there.keys():
    (folder / name).unlink(missing_ok=True)
  part = folder.with_name(f'{folder.name}.fetching')
  for name, state in there.items():
    if here.get(name) != state:
      durable.make_folder((folder / name).parent)
      # One that was removed meanwhile is not in the next listing either.
      with contextlib.suppress(FileNotFoundError):
        objects.download(name, part)
        os.replace(part, folder / name)
