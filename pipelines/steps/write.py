"""Groups examples by the file that they go to, and writes the files.

A distributed engine may run a step more than once and hands out results in
any order. So every file is sorted by what it holds, written beside its place
and moved there, and written by one grouped step.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam import pvalue
from array_record.python import array_record_module

from pipelines.engines import failures
from pipelines.examples import hashing
from pipelines.publishing import staging as staging_lib
from pipelines.steps import pieces, planning
from tff_algos.data import integrity, layout
from tff_algos.data import schema as schema_lib

# One record a group: a client is read without decompressing its neighbours.
_WRITER_OPTIONS = 'group_size:1'

CLIENTS = 'clients'


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

  def write(self, kind: str, index: int, piece: pieces.Piece) -> None:
    """Writes a shard's files and the facts about them.

    Args:
      kind: `CLIENTS` or `layout.HELD_OUT`.
      index: Number of the shard, or of the source distribution.
      piece: All examples of the shard, in any order.
    """
    examples = _sort(piece, self.seed)
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
      with _disk_errors():
        writer = array_record_module.ArrayRecordWriter(
          str(path), _WRITER_OPTIONS
        )
        for stored in records:
          writer.write(schema_lib.encode_record(stored, self.schema))
        writer.close()
      facts['files'][name] = integrity.describe_file(path)
    facts['counts'][split] = [len(stored.y) for stored in records]
    facts['label_histogram'][split] = [
      np.bincount(stored.y.ravel(), minlength=self.schema.num_classes).tolist()
      if self.schema.num_classes
      else []
      for stored in records
    ]


class WriteShard(beam.DoFn):
  """((kind, index), runs) -> the name of the shard, written."""

  def __init__(self, writer: ShardWriter, num_blocks: int) -> None:
    self._writer = writer
    self._num_blocks = num_blocks

  def process(
    self, keyed_runs: tuple[pieces.Key, Iterable[pieces.Run]]
  ) -> Iterator[str]:
    """Writes one shard."""
    (kind, index), runs = keyed_runs
    with failures.carried():
      found = pieces.collect(runs, self._num_blocks)
      piece = pieces.load(self._writer.staging, found)
      self._writer.write(kind, index, piece)
    yield f'{kind}-{index}'


class WriteShards(beam.PTransform[pvalue.PCollection[Any], pvalue.PValue]):
  """Runs keyed by (kind, index) -> names of shards, written."""

  def __init__(self, writer: ShardWriter, num_blocks: int) -> None:
    super().__init__()
    self._writer = writer
    self._num_blocks = num_blocks

  def expand(self, input_or_inputs: pvalue.PCollection[Any]) -> pvalue.PValue:
    """Groups the runs of a shard and writes it."""
    return (
      input_or_inputs
      | 'GroupByShard' >> beam.GroupByKey()
      | 'WriteShard' >> beam.ParDo(WriteShard(self._writer, self._num_blocks))
    )


@contextlib.contextmanager
def _disk_errors() -> Generator[None]:
  """Says as OSError what ArrayRecord has only words for."""
  try:
    yield
  except RuntimeError as error:
    for number in staging_lib.DISK_ERRORS:
      if os.strerror(number) in str(error):
        raise OSError(number, os.strerror(number)) from None
    raise


def _sort(piece: pieces.Piece, seed: int) -> pieces.Piece:
  """Returns the examples of a shard in an order that content alone decides."""
  lot = hashing.draw(piece.stored.example_id, seed, 'write/order')
  order = np.lexsort(
    (piece.position, piece.stored.source, lot, piece.client, piece.split)
  )
  return pieces.select(piece, order)


def _cut(
  examples: pieces.Piece, clients: range
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


def _select(
  stored: schema_lib.StoredExamples, rows: slice
) -> schema_lib.StoredExamples:
  return schema_lib.StoredExamples(*(column[rows] for column in stored))
