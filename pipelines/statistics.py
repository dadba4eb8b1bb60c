"""Beam pipeline for statistics of a published version.

  shards --measure--> rows of clients, written; totals by key
  totals --combine by key--> written
  rows, totals --> client_statistics.parquet, statistics.json

The output is deterministic, on any runner with any number of workers: see
`totals`.
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
from tff_algos.core import errors, records
from tff_algos.core.structures import Array
from tff_algos.data import integrity, layout
from tff_algos.data import schema as schema_lib
from tff_algos.data import statistics as statistics_lib

# A shard is processed in pieces of about this many feature values.
_PIECE_VALUES = 1 << 21
# Kind of the files with the rows of a shard's clients.
_CLIENTS = 'client_statistics'

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
    DataError: If the version is missing or damaged.
    InfrastructureError: If the Beam runner lost examples.
  """
  manifest = integrity.read_manifest(folder)
  integrity.check_files(folder, manifest, verify=True)
  if not force and _is_there(folder, manifest):
    return True
  _run(staging, folder, manifest, pipeline_options)
  found = _read_totals(staging)
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
      | 'MeasureHeldOut' >> beam.ParDo(MeasureHeldOut(reader))
    )
    _ = (
      (shards, held_out)
      | beam.Flatten()
      | 'AddTotals' >> beam.CombinePerKey(totals.add_all)
      | 'WriteTotals' >> beam.ParDo(WriteTotals(reader, staging))
    )


class MeasureShard(beam.DoFn):
  """DoFn: shard number -> totals by key; writes the rows of its clients."""

  def __init__(
    self, reader: published.Reader, staging: staging_lib.Staging
  ) -> None:
    self._reader = reader
    self._staging = staging

  def process(self, shard: int) -> Iterator[tuple[Key, totals.Totals]]:
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
            measured = totals.measure(examples, schema)
            sums[key] = (
              totals.add(sums[key], measured) if key in sums else measured
            )
      with self._staging.handing_over(
        self._staging.part(_CLIENTS, shard)
      ) as path:
        parquet.write_table(table.to_arrow(), path)
      for key, measured in sums.items():
        yield key, totals.to_exact(measured)

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
  """DoFn: number of a source distribution -> held-out totals by key."""

  def __init__(self, reader: published.Reader) -> None:
    self._reader = reader

  def process(self, source: int) -> Iterator[tuple[Key, totals.Totals]]:
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
      yield (
        (layout.HELD_OUT, dataset.source_names[source]),
        totals.to_exact(total),
      )


class WriteTotals(beam.DoFn):
  """DoFn: (key, totals) -> key; writes their description."""

  def __init__(
    self, reader: published.Reader, staging: staging_lib.Staging
  ) -> None:
    self._reader = reader
    self._staging = staging

  def process(self, keyed: tuple[Key, totals.Totals]) -> Iterator[Key]:
    """Writes the totals of one key."""
    with failures.carried():
      key, total = keyed
      schema = self._reader.dataset.schema
      kind, name = key
      described = totals.describe(
        total,
        num_features=_num_values(schema),
        by_feature=kind == statistics_lib.SOURCE,
      )
      index = name
      if kind in (statistics_lib.SOURCE, layout.HELD_OUT):
        # A source's name may not be a valid file name.
        index = str(schema.source_names.index(name))
      path = self._staging.work / f'totals-{kind}-{index}'
      with self._staging.handing_over(path) as temporary:
        temporary.write_text(json.dumps([kind, name, described]))
      yield key


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


def _read_totals(staging: staging_lib.Staging) -> dict[str, dict[str, Any]]:
  """Returns kind -> name -> result of `totals.describe`."""
  found: dict[str, dict[str, Any]] = {}
  for path in staging.find('totals-'):
    kind, name, described = json.loads(staging.read(path))
    found.setdefault(kind, {})[name] = described
  return found
