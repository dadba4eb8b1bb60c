"""Names of the files of a federated dataset."""

import contextlib
import os
import pathlib
import re
import tempfile

from tff_algos.core import durable, errors

CURRENT = 'CURRENT'
VERSIONS = 'versions'
AS_OF = 'as_of'
QUARANTINE = 'quarantine'
MANIFEST = 'manifest.json'
CLIENTS = 'clients.parquet'
HELD_OUT = 'held_out'
# Derived from the files above later; the manifest does not list them.
STATISTICS = 'statistics.json'
CLIENT_STATISTICS = 'client_statistics.parquet'
CARD = 'card.html'
SHARD_SUFFIX = '.array_record'

_ADDRESS = re.compile(r'[a-z0-9]+://.+')
_MAX_ADDRESS_CHARS = 4096


def shard_name(split: str, shard: int, num_shards: int) -> str:
  """Returns the name of a shard file; `split` may also be `HELD_OUT`."""
  return f'{split}-{shard:05d}-of-{num_shards:05d}{SHARD_SUFFIX}'


def version_folder(dataset: pathlib.Path, version: str) -> pathlib.Path:
  """Returns the folder of one version."""
  return dataset / VERSIONS / version


def read_pointer(path: pathlib.Path) -> str:
  """Returns the version that `CURRENT` or the record of a date names.

  Raises:
    FileNotFoundError: If there is no such file.
    DataError: If it names none, or is a folder or no text.
    OSError: If the disk fails.
  """
  try:
    version = path.read_text(encoding='utf-8').strip()
  except (OSError, UnicodeDecodeError) as error:
    if isinstance(error, FileNotFoundError) or errors.is_of_disk(error):
      raise
    version = ''
  if not version:
    raise errors.DataError(
      f'{path} is damaged: it must hold the name of a version, a folder in '
      f'{VERSIONS}. Write it there; the run of a night is linked to its own.'
    )
  return version


def write_address(path: pathlib.Path, address: str) -> None:
  """Writes a file in place of a dataset's folder: where the dataset is.

  Processes of a group that share the workdir may do so at the same time.
  """
  with tempfile.TemporaryDirectory(prefix='.dataset-', dir=path.parent) as own:
    file = pathlib.Path(own, path.name)
    file.write_text(f'{address}\n')
    durable.sync(file)
    os.replace(file, path)
  durable.sync(path.parent)


def read_address(path: str | os.PathLike[str]) -> str | None:
  """Returns the address in such a file; None if it is none."""
  with contextlib.suppress(OSError, UnicodeDecodeError), open(path) as file:
    text = file.read(_MAX_ADDRESS_CHARS).strip()
    return text if _ADDRESS.fullmatch(text) else None
  return None
