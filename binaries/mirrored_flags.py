"""Flags that name folders in object stores: programs work in local mirrors."""

import contextlib
import os
import re
from collections.abc import Callable, Generator

from absl import flags, logging

from tff_algos.core import errors
from tff_algos.stores import mirror as mirror_lib
from tff_algos.stores import objects

# Flags whose folder may be an address.
FOLDERS = ('workdir', 'export_dir')
# Flags whose addresses the program reads itself; also values of a config.
_READ = re.compile(r'config|dataset|config\..*')

_publishers: list[Callable[[], None]] = []


@contextlib.contextmanager
def mirrored() -> Generator[None]:
  """Replaces addresses in `FOLDERS` by local folders, published at the end.

  Raises:
    ConfigError: If another flag has one, one has an unknown scheme, or this is
      one of several processes.
    WorkdirBusyError: If another process writes there.
    InfrastructureError: If the store cannot be reached.
  """
  addresses = {}
  with contextlib.ExitStack() as stack:
    for name in flags.FLAGS:
      given = flags.FLAGS[name].value
      given = given if isinstance(given, list) else [given]
      # In a local folder `hdfs:` nobody would look for a run.
      is_address = objects.is_address if name in FOLDERS else _is_address
      value = next(filter(is_address, given), None)
      if value is None or _READ.fullmatch(name):
        continue
      if name not in FOLDERS:
        raise errors.ConfigError(
          f'--{name}={value}: this flag takes a local path; in an object '
          f'store may be {" and ".join(f"--{one}" for one in FOLDERS)}'
        )
      if 'TF_CONFIG' in os.environ:
        raise errors.ConfigError(
          f'--{name}={value}: several processes (TF_CONFIG) need a folder that '
          'they share; give a local path'
        )
      addresses[name] = value
    folders = {}
    # A folder comes before those in it, which are then of its publication.
    for name, value in sorted(addresses.items(), key=lambda item: item[1]):
      address, part = mirror_lib.publication(value)
      if address not in folders:
        mirror = mirror_lib.Mirror(address)
        _publishers.append(stack.enter_context(mirror.writing()))
        stack.callback(_publishers.pop)
        folders[address] = mirror.folder
      folder = folders[address] / part
      logging.info('--%s=%s is at %s', name, value, folder)
      flags.FLAGS[name].value = str(folder)
    yield


def publish() -> None:
  """Publishes what the program has done so far, if a flag is an address."""
  for publisher in _publishers:
    publisher()


def _is_address(value: object) -> bool:
  """Other flags may have addresses that are none of a store, as of a server."""
  return isinstance(value, str) and value.lower().startswith(
    tuple(f'{scheme}://' for scheme in objects.SCHEMES)
  )
