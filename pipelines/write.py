"""Groups examples by the file that they go to, and writes the files.

A distributed engine may run a step more than once and hands out results in
any order. So every file is sorted by what it holds, written beside its place
and moved there, and written by one grouped step.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from array_record.python import array_record_module

from pipelines import hashing, planning
from pipelines import staging as staging_lib
from tff_algos.data import integrity, layout
from tff_algos.data import schema as schema_lib

# One record a group: a client is read without decompressing its neighbours.
_WRITER_OPTIONS = 'group_size:1'

CLIENTS = 'clients'


class Piece(NamedTuple):
  """Examples of one block that go to one file.

  Attributes:
    stored: The examples, as they are written.
    client: Index of the client that gets each, int32 `[n]`.
    split: Position in `schema.SPLITS`, int8 `[n]`.
    position: Where the raw example stands in the source, int64 `[n]`.
  """

  stored: schema_lib.StoredExamples
  client: np.ndarray
  split: np.ndarray
  position: np.ndarray


class ShardWriter(NamedTuple):
  """Writes the files of one shard.

  Attributes:
    staging: Where.
    schema: The dataset's schema.
    num_clients: Clients in all shards.
    num_shards: Files of each split.
    seed: The dataset's seed; it shuffles the examples of a client.
  """

  staging: staging_lib.Staging
  schema: schema_lib.Schema
  num_clients: int
  num_shards: int
  seed: int

  def write(self, kind: str, index: int, pieces: Iterable[Piece]) -> None:
    """Writes a shard's files and the facts about them.

    Args:
      kind: `CLIENTS` or `layout.HELD_OUT`.
      index: Number of the shard, or of the source distribution.
      pieces: All pieces of the shard, in any order.
    """
    examples = _merge(list(pieces), self.seed)
    facts: dict[str, Any] = {'files': {}, 'counts': {}, 'label_histogram': {}}
    if kind == layout.HELD_OUT:
      name = layout.shard_name(kind, index, self.schema.num_sources)
      self._write_file(name, kind, [examples.stored], facts)
    else:
      clients = planning.clients_of(index, self.num_clients, self.num_shards)
      cells = _cut(examples, clients)
      for split, records in zip(schema_lib.SPLITS, cells, strict=True):
        name = layout.shard_name(split, index, self.num_shards)
        self._write_file(name, split, records, facts)
    with self.staging.atomic_path(
      self.staging.work / f'{kind}-{index:05d}.json'
    ) as path:
      path.write_text(json.dumps(facts))

  def _write_file(
    self,
    name: str,
    split: str,
    records: list[schema_lib.StoredExamples],
    facts: dict[str, Any],
  ) -> None:
    with self.staging.atomic_path(self.staging.version / name) as path:
      writer = array_record_module.ArrayRecordWriter(str(path), _WRITER_OPTIONS)
      for stored in records:
        writer.write(schema_lib.encode_record(stored, self.schema))
      writer.close()
      facts['files'][name] = integrity.describe_file(path)
    facts['counts'][split] = [len(stored.y) for stored in records]
    facts['label_histogram'][split] = [
      np.bincount(stored.y, minlength=self.schema.num_classes).tolist()
      if self.schema.num_classes
      else []
      for stored in records
    ]


class WriteShard(beam.DoFn):
  """((kind, index), pieces) -> the name of the shard, written."""

  def __init__(self, writer: ShardWriter):
    self._writer = writer

  def process(
    self, keyed_pieces: tuple[tuple[str, int], Iterable[Piece]]
  ) -> Iterator[str]:
    """Writes one shard."""
    (kind, index), pieces = keyed_pieces
    self._writer.write(kind, index, pieces)
    yield f'{kind}-{index}'


class WriteShards(beam.PTransform):
  """Pieces keyed by (kind, index) -> names of shards, written."""

  def __init__(self, writer: ShardWriter):
    super().__init__()
    self._writer = writer

  def expand(self, pieces: beam.PCollection) -> beam.PCollection:
    """Groups the pieces of a shard and writes it."""
    return (
      pieces
      | 'GroupByShard' >> beam.GroupByKey()
      | 'WriteShard' >> beam.ParDo(WriteShard(self._writer))
    )


def _merge(pieces: list[Piece], seed: int) -> Piece:
  """Returns all examples of a shard in an order that content alone decides."""
  columns = [
    np.concatenate(arrays)
    for arrays in zip(*(_columns(piece) for piece in pieces), strict=True)
  ]
  *stored, client, split, position = columns
  examples = Piece(schema_lib.StoredExamples(*stored), client, split, position)
  lot = hashing.draw(examples.stored.example_id, seed, 'write/order')
  order = np.lexsort((position, examples.stored.source, lot, client, split))
  return select(examples, order)


def _cut(
  examples: Piece, clients: range
) -> list[list[schema_lib.StoredExamples]]:
  """Returns sorted examples by split and client, also where there are none."""
  cell = examples.split.astype(np.int64) * len(clients)
  cell += examples.client - clients.start
  num_cells = len(schema_lib.SPLITS) * len(clients)
  bounds = np.searchsorted(cell, np.arange(num_cells + 1))
  cells = [
    _select(examples.stored, slice(start, stop))
    for start, stop in itertools.pairwise(bounds)
  ]
  return [
    cells[first : first + len(clients)]
    for first in range(0, num_cells, len(clients))
  ]


def select(piece: Piece, rows: np.ndarray) -> Piece:
  """Returns some examples of a piece, by mask or index."""
  return Piece(
    _select(piece.stored, rows),
    piece.client[rows],
    piece.split[rows],
    piece.position[rows],
  )


def _columns(piece: Piece) -> tuple[np.ndarray, ...]:
  return (*piece.stored, piece.client, piece.split, piece.position)


def _select(
  stored: schema_lib.StoredExamples, rows: np.ndarray | slice
) -> schema_lib.StoredExamples:
  return schema_lib.StoredExamples(*(column[rows] for column in stored))
