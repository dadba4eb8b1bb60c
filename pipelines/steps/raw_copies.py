"""Copies of raw data that are in an object store."""

import contextlib
import dataclasses
from collections.abc import Generator

from pipelines import options
from tff_algos.stores import objects, plain_copy

Copies = tuple[plain_copy.Copy, ...]


@contextlib.contextmanager
def held(
  config: options.DatasetConfig,
) -> Generator[tuple[options.DatasetConfig, Copies]]:
  """Copies raw data of addresses; yields the config of the copies, and these.

  Of a table, whose name may be a pattern, all files are copied that are in its
  folder, and none of inner folders: other programs may write there.

  Raises:
    DataError: If there is nothing at an address.
    InfrastructureError: If the store cannot be reached.
    WorkdirBusyError: If another process of this machine copies.
  """
  given = config.source.options
  found = {
    key: given[key].rpartition('/') if key != 'folder' else (given[key], '', '')
    for key in ('folder', 'path', 'test_path')
    if objects.is_address(given.get(key))
  }
  with contextlib.ExitStack() as stack:
    copies = {
      address: stack.enter_context(
        plain_copy.held(address, is_deep='folder' in found)
      )
      for address in {address for address, _, _ in found.values()}
    }
    local = {
      key: str(copies[address].folder / name)
      for key, (address, _, name) in found.items()
    }
    source = dataclasses.replace(config.source, options={**given, **local})
    yield dataclasses.replace(config, source=source), tuple(copies.values())
