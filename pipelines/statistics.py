"""Beam pipeline for statistics of a published version.

  shards --measure--> rows of clients, and totals by key, written
  rows, totals --> client_statistics.parquet, statistics.json

The totals of shards are added up in the order of the shards: the output is
deterministic, on any runner with any number of workers.
"""

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow
from absl import logging
from pyarrow import parquet

from pipelines.engines import failures, runner
from pipelines.examples import client_table, totals
from pipelines.publishing import published
from pipelines.publishing import staging as staging_lib
from tff_algos.core import durable, errors, records
from tff_algos.core.structures import Array
from tff_algos.data import integrity, layout
from tff_algos.data import schema as schema_lib
from tff_algos.data import statistics as statistics_lib

# A shard is processed in pieces of about this many feature values.
_PIECE_VALUES = 1 << 21
# Kind of the files with the rows of a shard's clients.
_CLIENTS = 'client_statistics'
# Start of the kinds of the files with totals by key.
_TOTALS = 'totals'

# Key of totals: ('source', name), ('held_out', name) or (group, split).
Key = tuple[str, str]


def measure(
  staging: staging_lib.Staging,
  folder: pathlib.Path,
  pipeline_options: Sequence[str] = (),
  *,
  force: bool = False,
) -> bool:
  """Computes the statistics of a version and writes them into its folder.

  Args:
    staging: Staging folder of the dataset, which locks it.
    folder: Folder of the version.
    pipeline_options: Beam's pipeline options.
    force: Whether to replace existing statistics.

  Returns:
    Whether they existed already, and were kept.

  Raises:
    ConfigError: If Beam does not accept an option.
    DataError: If the version is missing or damaged, or a folder is where a file
      belongs.
    InfrastructureError: If the Beam runner lost examples.
  """
  manifest = integrity.read_manifest(folder)
  integrity.check_files(folder, manifest, verify=True)
  if not force and _is_there(folder, manifest):
    return True
  for name in (layout.CLIENT_STATISTICS, layout.STATISTICS):
    durable.check_file_place(folder / name)
  _run(staging, folder, manifest, pipeline_options)
  found = _read_totals(staging, schema_lib.Schema.from_dict(manifest['schema']))
  _check_complete(found, manifest)
  clients = pyarrow.concat_tables(
    parquet.read_table(staging.part(_CLIENTS, shard))
    for shard in range(manifest['num_shards'])
  )
  with staging.atomic_path(folder / layout.CLIENT_STATISTICS) as path:
    parquet.write_table(clients, path)
    described = records.describe_file(path)
  content = {
    'statistics_version': statistics_lib.STATISTICS_VERSION,
    'version': manifest['version'],
    'manifest_checksum': manifest['checksum'],
    'files': {layout.CLIENT_STATISTICS: described},
    'totals': found,
  }
  with staging.atomic_path(folder / layout.STATISTICS) as path:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + '\n')
  return False


def _is_there(folder: pathlib.Path, manifest: dict[str, Any]) -> bool:
  if not (folder / layout.STATISTICS).exists():
    return False
  try:
    statistics_lib.read(folder, manifest)
  except errors.DataError as error:
    logging.warning('Measuring again: %s', error)
    return False
  return True


def _run(
  staging: staging_lib.Staging,
  folder: pathlib.Path,
  manifest: dict[str, Any],
  pipeline_options: Sequence[str],
) -> None:
  reader = published.Reader(folder)
  num_sources = len(manifest['schema']['source_names'])
  with runner.run_pipeline(pipeline_options) as pipeline:
    shards = (
      pipeline
      | 'Shards' >> runner.spread(range(manifest['num_shards']))
      | 'MeasureShard' >> beam.ParDo(MeasureShard(reader, staging))
    )
    held_out = (
      pipeline
      | 'HeldOut' >> runner.spread(range(num_sources))
      | 'MeasureHeldOut' >> beam.ParDo(MeasureHeldOut(reader, staging))
    )
    # Dask's runner computes only what the last step depends on.
    _ = (shards, held_out) | beam.Flatten()


class MeasureShard(beam.DoFn):
  """DoFn: shard -> its number; writes its totals and its clients' rows."""

  def __init__(
    self, reader: published.Reader, staging: staging_lib.Staging
  ) -> None:
    self._reader = reader
    self._staging = staging

  def process(self, shard: int) -> Iterator[int]:
    """Measures one shard."""
    with failures.carried():
      schema = self._reader.dataset.schema
      clients = self._reader.clients(shard)
      table = client_table.ClientTable(schema, clients)
      sums: dict[Key, totals.Totals] = {}
      for split in schema_lib.SPLITS:
        for piece in self._pieces(clients, split):
          table.add(split, piece.position, piece.examples)
          for key, examples in _by_key(piece, split, schema):
            _add(sums, key, totals.measure(examples, schema))
      with self._staging.handing_over(
        self._staging.part(_CLIENTS, shard)
      ) as path:
        parquet.write_table(table.to_arrow(), path)
      _write_totals(self._staging, self._staging.part(_TOTALS, shard), sums)
    yield shard

  def _pieces(
    self, clients: Sequence[published.Client], split: str
  ) -> Iterator['_Piece']:
    """Yields the examples of several clients at a time, in their order."""
    dataset = self._reader.dataset
    parts: list[_Piece] = []
    num_rows = 0
    for i, client in enumerate(clients):
      examples = dataset.examples(client.client_id, split)
      if client.group == schema_lib.UNLABELLED:
        examples = schema_lib.take(examples, slice(0))
      n = examples.num_examples
      unseen = np.full(n, client.group == schema_lib.UNSEEN)
      parts.append(_Piece(examples, np.full(n, i), unseen))
      num_rows += n
      if num_rows * _num_values(dataset.schema) >= _PIECE_VALUES:
        yield _join(parts)
        parts, num_rows = [], 0
    if parts:
      yield _join(parts)


class MeasureHeldOut(beam.DoFn):
  """DoFn: source distribution -> its number; writes its held-out totals."""

  def __init__(
    self, reader: published.Reader, staging: staging_lib.Staging
  ) -> None:
    self._reader = reader
    self._staging = staging

  def process(self, source: int) -> Iterator[int]:
    """Measures the held-out examples of one source distribution."""
    with failures.carried():
      dataset = self._reader.dataset
      schema = dataset.schema
      examples = dataset.held_out(source)
      total = totals.measure(schema_lib.take(examples, slice(0)), schema)
      step = max(1, _PIECE_VALUES // _num_values(schema))
      for start in range(0, examples.num_examples, step):
        piece = schema_lib.take(examples, slice(start, start + step))
        total = totals.add(total, totals.measure(piece, schema))
      path = self._staging.part(f'{_TOTALS}-{layout.HELD_OUT}', source)
      key = (layout.HELD_OUT, dataset.source_names[source])
      _write_totals(self._staging, path, {key: total})
    yield source


class _Piece(NamedTuple):
  """Examples of several clients of a shard.

  Attributes:
    examples: Of one split.
    position: Position of each example's client in the shard, `[n]`.
    unseen: Whether that client is unseen, bool `[n]`.
  """

  examples: schema_lib.Examples
  position: Array
  unseen: Array


def _join(parts: Sequence[_Piece]) -> _Piece:
  examples = schema_lib.Examples(
    *(
      np.concatenate(columns)
      for columns in zip(*(part.examples for part in parts), strict=True)
    )
  )
  return _Piece(
    examples,
    np.concatenate([part.position for part in parts]),
    np.concatenate([part.unseen for part in parts]),
  )


def _by_key(
  piece: _Piece, split: str, schema: schema_lib.Schema
) -> Iterator[tuple[Key, schema_lib.Examples]]:
  """Yields the examples of each group and source, including empty ones."""
  for group in schema_lib.GROUPS:
    rows = piece.unseen == (group == schema_lib.UNSEEN)
    yield (group, split), schema_lib.take(piece.examples, rows)
  for s, name in enumerate(schema.source_names):
    rows = piece.examples.source == s
    yield (statistics_lib.SOURCE, name), schema_lib.take(piece.examples, rows)


def _num_values(schema: schema_lib.Schema) -> int:
  return int(np.prod(schema.x_shape))


def _check_complete(
  found: Mapping[str, Mapping[str, Any]], manifest: Mapping[str, Any]
) -> None:
  """Raises InfrastructureError unless all examples have been counted."""
  expected = {
    (group, split): count
    for split, by_group in manifest['num_examples'].items()
    for group, count in by_group.items()
    if group != schema_lib.UNLABELLED
  }
  names = manifest['schema']['source_names']
  for name, count in zip(names, manifest['num_held_out'], strict=True):
    expected[layout.HELD_OUT, name] = count
  for (kind, name), count in expected.items():
    counted = found.get(kind, {}).get(name, {}).get('num_examples', 0)
    if counted != count:
      raise errors.InfrastructureError(
        f'the engine lost examples: of {kind} {name}, {counted} of {count} '
        'were counted. Nothing was written; try again, or with other '
        'beam_options.'
      )


def _add(
  sums: dict[Key, totals.Totals], key: Key, measured: totals.Totals
) -> None:
  sums[key] = totals.add(sums[key], measured) if key in sums else measured


def _write_totals(
  staging: staging_lib.Staging,
  path: pathlib.Path,
  sums: Mapping[Key, totals.Totals],
) -> None:
  with staging.handing_over(path) as temporary:
    rows = [[*key, *total.to_lists()] for key, total in sums.items()]
    temporary.write_text(json.dumps(rows))


def _read_totals(
  staging: staging_lib.Staging, schema: schema_lib.Schema
) -> dict[str, dict[str, Any]]:
  """Returns kind -> name -> result of `totals.describe`."""
  sums: dict[Key, totals.Totals] = {}
  for path in staging.find(f'{_TOTALS}-'):
    for kind, name, *lists in json.loads(staging.read(path)):
      _add(sums, (kind, name), totals.Totals.from_lists(lists))
  found: dict[str, dict[str, Any]] = {}
  for (kind, name), total in sums.items():
    found.setdefault(kind, {})[name] = totals.describe(
      total,
      num_features=_num_values(schema),
      by_feature=kind == statistics_lib.SOURCE,
    )
  return found
