"""Reader of the statistics of a dataset version's examples."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow
from pyarrow import parquet

from tff_algos.core import errors, records, sealed_json
from tff_algos.data import layout

# Readers refuse any other version. Raise it when the content changes.
STATISTICS_VERSION = 1
# The key of the totals of a source distribution, over the clients' examples.
SOURCE = 'source'

_MEASURE = 'Measure the dataset with binaries.card.'


class Statistics(NamedTuple):
  """Measured statistics of a version.

  Attributes:
    totals: kind -> name -> totals, where kind and name are a group of clients
      and a split, or `SOURCE` or `layout.HELD_OUT` and a source distribution.
    clients: A table with one row per client, ordered like `clients.parquet`.
    sha256: Of `statistics.json`, in hex digits.
  """

  totals: Mapping[str, Mapping[str, Mapping[str, Any]]]
  clients: pyarrow.Table
  sha256: str


def read(folder: pathlib.Path, manifest: Mapping[str, Any]) -> Statistics:
  """Returns the statistics of a version.

  Args:
    folder: The version's folder.
    manifest: Its manifest.

  Raises:
    DataError: If they are missing, damaged or not of the files that the
      manifest lists.
    OSError: If the disk fails.
  """
  path = folder / layout.STATISTICS
  content = sealed_json.load(path, _MEASURE)
  try:
    found = content['statistics_version'], content['manifest_checksum']
    files, totals = content['files'], content['totals']
  except KeyError as error:
    raise errors.DataError(
      f'{path} is damaged: it has no entry {error}. {_MEASURE}'
    ) from None
  if found != (STATISTICS_VERSION, manifest['checksum']):
    raise errors.DataError(
      f'{path} is of another version of the dataset, or of another format '
      f'than {STATISTICS_VERSION}. {_MEASURE}'
    )
  problem = records.first_problem(folder, files)
  if problem:
    raise errors.DataError(f'{problem}. {_MEASURE}')
  return Statistics(
    totals=totals,
    clients=parquet.read_table(folder / layout.CLIENT_STATISTICS),
    sha256=records.file_sha256(path),
  )
