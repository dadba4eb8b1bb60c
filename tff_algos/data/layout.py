"""Names of the files of a federated dataset."""

import pathlib

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


def shard_name(split: str, shard: int, num_shards: int) -> str:
  """Returns the name of a shard file; `split` may also be `HELD_OUT`."""
  return f'{split}-{shard:05d}-of-{num_shards:05d}{SHARD_SUFFIX}'


def version_folder(dataset: pathlib.Path, version: str) -> pathlib.Path:
  """Returns the folder of one version."""
  return dataset / VERSIONS / version
